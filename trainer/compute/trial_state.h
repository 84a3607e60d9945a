#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/plan/program.h"
#include "spillway/train_config.h"
#include "trainer/checkpoint/generation.h"
#include "trainer/checkpoint/generation_file.h"
#include "trainer/checkpoint/state_gate.h"
#include "trainer/checkpoint/trial_history.h"

namespace spillway {

/// Where the state of a trial lies in its home: weights by the names of parameters, moments by
/// PyTorch's names of them ("exp_avg.wte", "momentum_buffer.wte").
class StatePlaces {
 public:
  StatePlaces(const ModelSpec& model, const TrainConfig& train, const Layout& layout);

  /// Weights, moments and history as files of a generation. Their bytes are taken from `home` when
  /// they are written, each parameter as `gate` allows; Error where the trial ends before. All
  /// outlive the files. No bytes are needed to know the files' lengths: `home` may be null.
  std::vector<GenerationFile> files(const std::byte* home, StateGate* gate,
                                    const TrialHistory& history) const;
  /// Reads weights and moments into a home. Throws CorruptData where a tensor is missing or of
  /// another size.
  void restore(const Generation& from, std::byte* home) const;

 private:
  struct Place {
    std::size_t param = 0;
    Bytes home = 0;
    bool is_last = false;  ///< of what is read of its parameter
  };
  void add(std::vector<TensorEntry>& tensors, const std::string& name, const TensorSpec& tensor,
           const Place& place);

  std::vector<TensorEntry> weights_, moments_;  // in the order of parameters
  std::map<std::string, Place> places_;
};

/// Of the trial whose generation it is; see TrialHistory.
TrialHistory read_history(const Generation& from, std::size_t limit, std::optional<Rungs> rungs);

}  // namespace spillway
