#pragma once

#include <map>
#include <memory>
#include <utility>

#include "scheduler/plan/program.h"
#include "spillway/units.h"

namespace spillway {

/// The graphs that forward ops have left on a device for their backward ops. For the device's
/// compute thread; once that can run nothing any more, for any thread.
class KeptGraphs {
 public:
  /// What an op runner keeps. Its destructor frees the graph.
  using Graph = std::shared_ptr<void>;

  /// `bytes`: what the graph may take.
  void keep(BufferRef op, Bytes bytes, Graph graph) {
    bytes_ += bytes;
    graphs_[op] = {bytes, std::move(graph)};
  }
  /// Removes the graph and returns it; null: it was not kept.
  Graph take(BufferRef op) {
    const auto found = graphs_.find(op);
    if (found == graphs_.end()) return nullptr;
    bytes_ -= found->second.bytes;
    Graph graph = std::move(found->second.graph);
    graphs_.erase(found);
    return graph;
  }
  Bytes bytes() const { return bytes_; }

 private:
  struct Kept {
    Bytes bytes = 0;
    Graph graph;
  };
  std::map<BufferRef, Kept> graphs_;  // by OpSpec::graph
  Bytes bytes_ = 0;
};

}  // namespace spillway
