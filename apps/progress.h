#pragma once

#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "apps/sweep.h"
#include "trainer/session.h"

namespace spillway {

/// Prints what happens to the trials of a run: a line for every change of state, and between them
/// one for each trial now and then.
class Progress {
 public:
  /// `trials` in the order of their ids; they and `out` outlive this.
  Progress(std::ostream& out, const std::vector<Trial>& trials);
  void show(std::span<const SessionEvent> events);

 private:
  struct Line {
    SessionEvent latest;
    double eval_loss = 0;
    bool evaluated = false;
    double shown_s = 0;
  };
  void print(std::size_t trial);

  std::ostream& out_;
  const std::vector<Trial>& trials_;
  std::vector<Line> lines_;
  std::size_t name_width_ = 0;
};

}  // namespace spillway
