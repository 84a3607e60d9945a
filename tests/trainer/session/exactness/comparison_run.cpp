#include <fstream>
#include <iostream>
#include <string>

#include "tests/support/run/training_run.h"
#include "trainer/compute/initialize.h"
#include "trainer/storage/weights_file.h"

/// Trains a GPT spilled and writes the files that another program needs to repeat it:
/// initial.safetensors, batches.bin (the tokens of all steps, int64), losses.txt (one per line).
/// Usage: comparison_run FOLDER

namespace spillway::testing {
namespace {

TrialConfig compared_trial() {
  GptConfig model = tiny_gpt();
  model.dropout = 0;
  model.initializer_range = 0.1;
  TrialConfig trial = tiny_trial("compared", model);
  trial.train.max_steps = 10;
  trial.train.eval_steps = 0;
  trial.train.warmup_ratio = 0.2;
  return trial;
}

void write_initial_weights(const TrialConfig& trial, const std::string& path) {
  const auto model = trial.model(1);
  std::vector<std::vector<float>> values;
  std::vector<NamedArray> arrays;
  for (const ParamSpec& param : model->spec.params) {
    values.emplace_back(static_cast<std::size_t>(param.tensor.elements()));
    initialize(values.back().data(), param, trial.train.seed, values.size() - 1);
    arrays.push_back(
        array_of(param.name, param.tensor.shape(), std::as_bytes(std::span(values.back()))));
  }
  write_safetensors(path, arrays);
}

void write_batches(const TrialConfig& trial, const std::string& path) {
  std::ofstream file(path, std::ios::binary);
  const DataSource& data = *trial.data->train;
  std::vector<std::byte> row(static_cast<std::size_t>(data.sample_elements()) * 8);
  for (std::int64_t i = 0; i < trial.train.max_steps * trial.train.batch_size; ++i) {
    data.read(sample_at(static_cast<std::uint64_t>(i), data.num_samples(), trial.train.seed), row);
    file.write(reinterpret_cast<const char*>(row.data()), static_cast<std::streamsize>(row.size()));
  }
}

int run(const std::string& folder) {
  const TrialConfig trial = compared_trial();
  const TrialResult result = train(session_of(1, smallest_budget(trial)), trial).trials[0];
  if (result.state != TrialState::done || result.num_shards < 2) {
    std::cerr << "no spilled run: " << result.reason << std::endl;
    return 1;
  }
  write_initial_weights(trial, folder + "/initial.safetensors");
  write_batches(trial, folder + "/batches.bin");
  std::ofstream losses(folder + "/losses.txt");
  losses.precision(17);
  for (const double loss : result.losses) losses << loss << "\n";
  return 0;
}

}  // namespace
}  // namespace spillway::testing

int main(int argc, char** argv) { return argc == 2 ? spillway::testing::run(argv[1]) : 2; }
