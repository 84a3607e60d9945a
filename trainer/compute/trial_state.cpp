#include "trainer/compute/trial_state.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <span>
#include <string_view>

#include "spillway/error.h"
#include "spillway/ids.h"
#include "trainer/compute/optimizer.h"

namespace spillway {
namespace {

constexpr const char* kMoments = "moments.safetensors";
constexpr const char* kHistory = "history.json";

std::string moment_name(const TrainConfig& train, int moment) {
  if (train.optimizer == OptimizerKind::sgd) return "momentum_buffer";
  return moment == 0 ? "exp_avg" : "exp_avg_sq";
}

at::Tensor empty_tensor(const std::vector<std::int64_t>& shape, bool is_f32) {
  return at::empty(shape, is_f32 ? at::kFloat : at::kLong);
}

}  // namespace

StatePlaces::StatePlaces(const ModelSpec& model, const TrainConfig& train, const Layout& layout) {
  for (std::size_t p = 0; p < model.params.size(); ++p) {
    const ParamSpec& param = model.params[p];
    const int moments = param.trainable && !param.is_statistic() ? layout.moments : 0;
    add(weights_, param.name, param.master(), {p, layout.params[p].home, moments == 0});
    for (int i = 0; i < moments; ++i) {
      add(moments_, moment_name(train, i) + "." + param.name, param.master(),
          {p, layout.moment(static_cast<int>(p), i), i + 1 == moments});
    }
  }
}

void StatePlaces::add(std::vector<TensorEntry>& tensors, const std::string& name,
                      const TensorSpec& tensor, Place place) {
  place.bytes = tensor.bytes();
  tensors.push_back(
      {.name = name, .dtype = safetensors_dtype(tensor.dtype), .shape = tensor.shape()});
  places_[name] = place;
}

std::vector<GenerationFile> StatePlaces::files(const Home* home, StateGate* gate,
                                               const TrialHistory& history) const {
  const auto fill = [this, home, gate](const TensorEntry& tensor, std::span<std::byte> into,
                                       Bytes offset) {
    const Place& place = places_.at(tensor.name);
    if (!gate->wait_for(place.param)) {
      throw Error("the trial ended before its state could be read");
    }
    std::memcpy(into.data(), home->at(place.home + offset), into.size());
    if (place.is_last && offset + into.size() == tensor.bytes()) gate->release(place.param);
  };
  std::vector<GenerationFile> files{safetensors_file(kWeightsFile, weights_, fill),
                                    bytes_file(kHistory, history.to_text())};
  if (!moments_.empty()) files.push_back(safetensors_file(kMoments, moments_, fill));
  return files;
}

bool StatePlaces::has_tensors_of(const StatePlaces& other) const {
  return weights_ == other.weights_ && moments_ == other.moments_;
}

void StatePlaces::take(const StatePlaces& from, const Home& from_home, const Home& home,
                       StateGate& gate) const {
  for (const auto* tensors : {&weights_, &moments_}) {
    for (const TensorEntry& tensor : *tensors) {
      const Place& place = places_.at(tensor.name);
      gate.begin_update(place.param);
      if (Home::is_shared(place.home)) continue;
      const Bytes source = from.places_.at(tensor.name).home;
      std::memcpy(home.at(place.home), from_home.at(source), place.bytes);
    }
  }
}

void StatePlaces::restore(const Generation& from, const Home& home) const {
  const auto read = [&](const char* name, const std::vector<TensorEntry>& tensors) {
    if (tensors.empty()) return;
    const Safetensors file(from.file(name));
    for (const TensorEntry& tensor : tensors) {
      const TensorEntry& stored = file.at(tensor.name);
      if (stored.dtype != tensor.dtype || stored.shape != tensor.shape) {
        throw CorruptData(name, "tensor '" + tensor.name + "' has another type or shape");
      }
      const Bytes place = places_.at(tensor.name).home;
      if (!home.is_written(place)) file.read(stored, 0, {home.at(place), stored.bytes()});
    }
  };
  read(kWeightsFile, weights_);
  read(kMoments, moments_);
}

TrialHistory read_history(const Generation& from, std::size_t limit, std::optional<Rungs> rungs) {
  return TrialHistory::parse(bytes_of(from.file(kHistory)), kHistory, limit, rungs);
}

std::vector<NamedTensor> copy_of(std::span<const NamedArray> arrays) {
  std::vector<NamedTensor> tensors;
  for (const NamedArray& array : arrays) {
    const at::Tensor value = empty_tensor(array.shape, array.dtype == DType::f32);
    std::memcpy(value.mutable_data_ptr(), array.data.data(), array.data.size());
    tensors.push_back({array.name, value});
  }
  return tensors;
}

std::vector<NamedTensor> read_tensors(const Safetensors& file) {
  std::vector<NamedTensor> tensors;
  for (const std::string& name : file.names()) {
    const TensorEntry& entry = file.at(name);
    const bool is_f32 = entry.dtype == safetensors_dtype(DType::f32);
    if (!is_f32 && entry.dtype != safetensors_dtype(DType::i64)) {
      throw CorruptData(name, fmt::format("has the type {}, not F32 or I64", entry.dtype));
    }
    const at::Tensor value = empty_tensor(entry.shape, is_f32);
    file.read(entry, 0, {static_cast<std::byte*>(value.mutable_data_ptr()), value.nbytes()});
    tensors.push_back({name, value});
  }
  return tensors;
}

}  // namespace spillway
