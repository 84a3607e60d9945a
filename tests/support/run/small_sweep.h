#pragma once

#include <string>

#include "tests/support/disk/temporary_folder.h"

namespace spillway::testing {

/// Writes a sweep of four small trials, which spill on both of its devices, and its data; the
/// outputs go to "out". Returns the path of the configuration.
inline std::string write_small_sweep(const TemporaryFolder& folder) {
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "line " + std::to_string(i * i % 97) + "\n";
  const std::string data = folder.write("text.txt", text);
  return folder.write(
      "sweep.yaml",
      "devices: [{memory: 720KiB}, {memory: 720KiB}]\n"
      "model: {num_hidden_layers: 3, hidden_size: 48, max_position_embeddings: 16}\n"
      "data: {path: " +
          data +
          "}\n"
          "train: {batch_size: 8, virtual_nodes: 4, max_steps: 5, eval_batches: 1}\n"
          "output_dir: " +
          folder / "out" +
          "\n"
          "sweep:\n"
          "  parameters:\n"
          "    train.learning_rate: {values: [1e-3, 1e-2]}\n"
          "    seed: {values: [1, 2]}\n");
}

}  // namespace spillway::testing
