#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/safetensors/safetensors.h"
#include "core/spec/stored_tensor.h"
#include "scheduler/plan/program.h"
#include "spilling/tiers/homes.h"
#include "spillway/train_config.h"
#include "spillway/weights.h"
#include "trainer/checkpoint/generation.h"
#include "trainer/checkpoint/generation_file.h"
#include "trainer/checkpoint/state_gate.h"
#include "trainer/checkpoint/trial_history.h"
#include "trainer/runtime/state_exchange.h"
#include "trainer/storage/weights_file.h"

namespace spillway {

/// The file of a generation that has the weights.
inline constexpr const char* kWeightsFile = "weights.safetensors";

/// Where the state of a trial lies in its home, without constants (is_constant()). Weights have the
/// names of stored tensors, moments PyTorch's names ("exp_avg.wte", "momentum_buffer.wte").
class StatePlaces {
 public:
  /// `model` outlives it.
  StatePlaces(const ModelSpec& model, const TrainConfig& train, const Layout& layout);

  /// All weights, constants too. They are read from `home`, and what it lacks from other hosts,
  /// once. All outlive the arrays.
  std::vector<NamedArray> weights(const Home& home, RemoteState* remote) const;
  /// Weights, moments and history as files of a generation. Their bytes are read from `home`, or
  /// from other hosts, while the files are written, each parameter when `gate` allows; throws Error
  /// if the trial ends before. The arguments outlive the files. `home` may be null if only the
  /// lengths are needed.
  std::vector<GenerationFile> files(const Home* home, StateGate* gate, const TrialHistory& history,
                                    RemoteState* remote = nullptr) const;
  /// Whether both have the same tensors, wherever they lie.
  bool has_tensors_of(const StatePlaces& other) const;
  /// Copies weights and moments between homes of such states, each parameter when `gate` allows;
  /// not those that trials share.
  void take(const StatePlaces& from, const Home& from_home, const Home& home,
            StateGate& gate) const;
  /// Takes consecutive elements of a parameter's master.
  using TakeWeights =
      std::function<void(int param, ElementRange elements, const std::byte* values)>;
  /// Reads weights and moments into a home that is being filled. `take` gets all elements of the
  /// masters that hosts divide, a block at a time. Throws CorruptData if a tensor is missing or has
  /// another size.
  void restore(const Generation& from, const Home& home, const TakeWeights& take) const;

 private:
  struct Part {
    std::size_t param = 0;
    Bytes home = 0;     ///< of the first of `held`
    ElementRange held;  ///< the elements that this host has
    ElementRange kept;  ///< those among them that it updates
    int plane = kMasters;
  };
  struct Place {
    std::vector<Part> parts;  ///< of the stored tensor
    bool is_last = false;     ///< files have no more of these parameters
  };
  void add(std::vector<TensorEntry>& tensors, const std::string& name, const StoredTensor& stored,
           Place place);
  const ParamSpec& param_of(const Part& part) const { return model_.params[part.param]; }
  Bytes element_bytes(const Part& part) const { return size_of(param_of(part).master().dtype); }
  /// Whether only other hosts have some of the elements.
  bool is_incomplete(const Part& part) const { return part.held != all_elements(param_of(part)); }
  /// The bytes of a tensor from `offset` on.
  void gather(const Place& place, const Home& home, RemoteState* remote, std::span<std::byte> into,
              Bytes offset) const;
  void read_part(const Safetensors& file, const TensorEntry& stored, const Part& part,
                 const Home& home) const;
  void read_masters(const Safetensors& file, const TensorEntry& stored, const Part& part,
                    const TakeWeights& take) const;

  const ModelSpec& model_;
  const std::vector<StoredTensor> all_;
  std::vector<TensorEntry> weights_, moments_;  // in the order of parameters
  std::map<std::string, Place> places_;
};

/// The history of the checkpoint's trial; see TrialHistory.
TrialHistory read_history(const Generation& from, std::size_t limit, std::optional<Rungs> rungs);

/// A tensor of f32 or i64 whose values are not set.
at::Tensor empty_tensor(const std::vector<std::int64_t>& shape, DType dtype);

/// Arrays as tensors. Throws what reading them throws.
NamedTensor copy_of(const NamedArray& array);
std::vector<NamedTensor> copy_of(std::span<const NamedArray> arrays);

}  // namespace spillway
