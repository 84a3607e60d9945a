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

/// The elements of a run that are among `elements` of the parameter.
StoredRun within(const StoredRun& run, ElementRange elements) {
  const ElementRange both = overlap({run.in_param, run.in_param + run.length}, elements);
  return {both.begin, run.in_tensor + both.begin - run.in_param, both.size()};
}

}  // namespace

StatePlaces::StatePlaces(const ModelSpec& model, const TrainConfig& train, const Layout& layout)
    : model_(model), all_(stored_tensors(model)) {
  for (const StoredTensor& stored : all_) {
    const ParamSpec& first = model.params[at(stored.params.front())];
    const int moments = first.trainable && !first.is_statistic() ? layout.moments : 0;
    Place weights{.is_last = moments == 0};
    for (int p : stored.params) {
      const Layout::ParamPlace& place = layout.params[at(p)];
      weights.parts.push_back({at(p), place.home, place.held, place.kept});
    }
    if (is_constant(first)) {
      places_[stored.name] = std::move(weights);
      continue;
    }
    add(weights_, stored.name, stored, std::move(weights));
    for (int i = 0; i < moments; ++i) {
      Place place{.is_last = i + 1 == moments};
      for (int p : stored.params) {
        const ElementRange kept = layout.params[at(p)].kept;
        place.parts.push_back({at(p), layout.moment(p, i), kept, kept, i});
      }
      add(moments_, moment_name(train, i) + "." + stored.name, stored, std::move(place));
    }
  }
}

void StatePlaces::add(std::vector<TensorEntry>& tensors, const std::string& name,
                      const StoredTensor& stored, Place place) {
  tensors.push_back({.name = name,
                     .dtype = safetensors_dtype(stored.tensor.dtype),
                     .shape = stored.tensor.shape()});
  places_[name] = std::move(place);
}

void StatePlaces::gather(const Place& place, const Home& home, RemoteState* remote,
                         std::span<std::byte> into, Bytes offset) const {
  const Bytes size = element_bytes(place.parts.front());
  const auto begin = static_cast<std::int64_t>(offset / size);
  const auto end = begin + static_cast<std::int64_t>(into.size() / size);
  for (const Part& part : place.parts) {
    const bool is_rescue = remote && remote->is_rescue();
    const ElementRange here = is_rescue ? part.kept : part.held;
    for_each_run(param_of(part), begin, end, [&](const StoredRun& run) {
      const auto place_of = [&](const StoredRun& some) {
        return into.data() + static_cast<Bytes>(some.in_tensor - begin) * size;
      };
      if (const StoredRun own = within(run, here); own.length > 0) {
        std::memcpy(place_of(own),
                    home.at(part.home + static_cast<Bytes>(own.in_param - part.held.begin) * size),
                    static_cast<Bytes>(own.length) * size);
      }
      for (const ElementRange others : {ElementRange{0, here.begin},
                                        ElementRange{here.end, param_of(part).tensor.elements()}}) {
        const StoredRun rest = within(run, others);
        if (rest.length == 0) continue;
        if (remote == nullptr) throw Error("other hosts have a part of the weights");
        remote->read(static_cast<int>(part.param), part.plane,
                     {rest.in_param, rest.in_param + rest.length}, place_of(rest));
      }
    });
  }
}

std::vector<NamedArray> StatePlaces::weights(const Home& home, RemoteState* remote) const {
  std::vector<NamedArray> arrays;
  for (const StoredTensor& stored : all_) {
    const Place& place = places_.at(stored.name);
    arrays.push_back({stored.name, stored.tensor.shape(), stored.tensor.dtype,
                      [this, &place, &home, remote](std::span<std::byte> into, Bytes offset) {
                        gather(place, home, remote, into, offset);
                      }});
  }
  return arrays;
}

std::vector<GenerationFile> StatePlaces::files(const Home* home, StateGate* gate,
                                               const TrialHistory& history,
                                               RemoteState* remote) const {
  const auto fill = [this, home, gate, remote](const TensorEntry& tensor, std::span<std::byte> into,
                                               Bytes offset) {
    const Place& place = places_.at(tensor.name);
    for (const Part& part : place.parts) {
      if (gate->wait_for(part.param)) continue;
      throw Error("the trial ended before its state could be read");
    }
    gather(place, *home, remote, into, offset);
    if (!place.is_last || offset + into.size() < tensor.bytes()) return;
    for (const Part& part : place.parts) gate->release(part.param);
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
      const std::vector<Part>& parts = places_.at(tensor.name).parts;
      for (std::size_t i = 0; i < parts.size(); ++i) {
        gate.begin_update(parts[i].param);
        if (Home::is_shared(parts[i].home)) continue;
        const Bytes source = from.places_.at(tensor.name).parts[i].home;
        std::memcpy(home.at(parts[i].home), from_home.at(source),
                    static_cast<Bytes>(parts[i].held.size()) * element_bytes(parts[i]));
      }
    }
  }
}

/// The elements of a stored tensor that this host holds.
void StatePlaces::read_part(const Safetensors& file, const TensorEntry& stored, const Part& part,
                            const Home& home) const {
  const Bytes size = element_bytes(part);
  for_each_run(param_of(part), [&](const StoredRun& run) {
    const StoredRun held = within(run, part.held);
    if (held.length == 0) return;
    const Bytes place = part.home + static_cast<Bytes>(held.in_param - part.held.begin) * size;
    file.read(stored, static_cast<Bytes>(held.in_tensor) * size,
              {home.at(place), static_cast<Bytes>(held.length) * size});
  });
}

/// All elements of a stored tensor that are a parameter's.
void StatePlaces::read_masters(const Safetensors& file, const TensorEntry& stored, const Part& part,
                               const TakeWeights& take) const {
  constexpr std::int64_t kBlock = 262'144;  // elements
  const Bytes size = element_bytes(part);
  std::vector<std::byte> room;
  for_each_run(param_of(part), [&](const StoredRun& run) {
    for (std::int64_t done = 0; done < run.length; done += kBlock) {
      const std::int64_t length = std::min(kBlock, run.length - done);
      room.resize(static_cast<Bytes>(length) * size);
      file.read(stored, static_cast<Bytes>(run.in_tensor + done) * size, room);
      const std::int64_t first = run.in_param + done;
      take(static_cast<int>(part.param), {first, first + length}, room.data());
    }
  });
}

void StatePlaces::restore(const Generation& from, const Home& home, const TakeWeights& take) const {
  const auto read = [&](const char* name, const std::vector<TensorEntry>& tensors) {
    if (tensors.empty()) return;
    const Safetensors file(from.file(name));
    for (const TensorEntry& tensor : tensors) {
      const TensorEntry& stored = file.at(tensor.name);
      if (stored.dtype != tensor.dtype || stored.shape != tensor.shape) {
        throw CorruptData(name, "tensor '" + tensor.name + "' has another type or shape");
      }
      for (const Part& part : places_.at(tensor.name).parts) {
        if (home.is_written(part.home)) continue;
        if (is_incomplete(part) && part.plane == kMasters) {
          read_masters(file, stored, part, take);
        } else {
          read_part(file, stored, part, home);
        }
      }
    }
  };
  read(kWeightsFile, weights_);
  read(kMoments, moments_);
}

TrialHistory read_history(const Generation& from, std::size_t limit, std::optional<Rungs> rungs) {
  return TrialHistory::parse(bytes_of(from.file(kHistory)), kHistory, limit, rungs);
}

at::Tensor empty_tensor(const std::vector<std::int64_t>& shape, DType dtype) {
  return at::empty(shape, dtype == DType::f32 ? at::kFloat : at::kLong);
}

NamedTensor copy_of(const NamedArray& array) {
  const at::Tensor value = empty_tensor(array.shape, array.dtype);
  if (value.nbytes() > 0) {
    array.read({static_cast<std::byte*>(value.mutable_data_ptr()), value.nbytes()}, 0);
  }
  return {array.name, value};
}

std::vector<NamedTensor> copy_of(std::span<const NamedArray> arrays) {
  std::vector<NamedTensor> tensors;
  for (const NamedArray& array : arrays) tensors.push_back(copy_of(array));
  return tensors;
}

}  // namespace spillway
