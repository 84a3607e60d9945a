#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/check/bad_input.h"

/// Convolutional networks from the configuration.
namespace spillway::testing {
namespace {

constexpr const char* kGraph = R"(output_dir: out
devices: [{memory: 16MiB}]
data: {format: digits, path: digits.csv}
model:
  family: cnn
  num_channels: 1
  image_size: 8
  num_classes: 10
  input_scale: 0.0625
  layers:
  - {type: conv, name: conv1, out_channels: 4, kernel_size: 3, padding: 1, batch_norm: true}
  - {type: max_pool, name: pool, kernel_size: 2}
  - {type: conv, name: left, out_channels: 4, kernel_size: [1, 3], padding: [0, 1]}
  - {type: avg_pool, name: right, inputs: [pool], kernel_size: 3, stride: 1, padding: 1}
  - {type: add, name: sum, inputs: [left, right], activation: relu}
  - {type: dropout, p: 0.1}
  - {type: linear, name: fc, out_features: 10}
train: {batch_size: 4, virtual_nodes: 4, max_steps: 1}
)";

constexpr const char* kPreset = R"(output_dir: out
devices: [{memory: 16MiB}]
data: {format: tensors, path: pictures.safetensors}
model: {family: cnn, preset: lenet, image_size: 32, num_classes: 10}
train: {batch_size: 4, virtual_nodes: 4, max_steps: 1}
)";

/// Black pictures [20, 3, 32, 32], each of class `label`.
std::string pictures_of_class(char label) {
  std::string header = R"({"images": {"dtype": "U8", "shape": [20, 3, 32, 32], )"
                       R"("data_offsets": [0, 61440]}, "labels": {"dtype": "U8", )"
                       R"("shape": [20], "data_offsets": [61440, 61460]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string file(8, '\0');
  file[0] = static_cast<char>(header.size());
  return file + header + std::string(61440, '\0') + std::string(20, label);
}

/// A replacement in a configuration, and the expected message.
struct BadCnn {
  const char *text, *from, *to, *message;
};

constexpr BadCnn kBad[] = {
    {kGraph, "type: conv, name: left", "type: con, name: left",
     "line 13: model.layers[2].type: is 'con', must be conv, max_pool"},
    {kGraph, "{type: conv, name: left", "{name: left",
     "line 13: model.layers[2].type: is missing; write one, such as conv or linear"},
    {kGraph, "kernel_size: [1, 3]", "kernel_size: [1, 3, 3]",
     "line 13: model.layers[2].kernel_size: is a list, must be an integer or a list of two"},
    {kGraph, "kernel_size: [1, 3]", "kernel_size: [1, 0]",
     "line 13: model.layers[2].kernel_size[1]: is '0', must be an integer from 1"},
    {kGraph, "kernel_size: [1, 3]", "kernel_sizes: 3",
     "line 13: model.layers[2].kernel_sizes: unknown key; did you mean "
     "model.layers[2].kernel_size?"},
    {kGraph, "kernel_size: [1, 3]", "kernel_size: [1, 7]",
     "line 13: model.layers[2].kernel_size: is 1 x 7, but it reads pictures of 4 x 4 with padding "
     "of 0 x 1; use a smaller kernel"},
    {kGraph, "{type: max_pool, name: pool, kernel_size: 2}", "{type: max_pool, name: pool}",
     "line 12: model.layers[1].kernel_size: is missing; write it, such as 3 or [1, 7]"},
    {kGraph, "name: pool, kernel_size: 2", "name: pool, kernel_size: 2, activation: relu",
     "line 12: model.layers[1].activation: unknown key"},
    {kGraph, "inputs: [pool]", "inputs: [pol]",
     "line 14: model.layers[3].inputs: names 'pol', which is no layer; did you mean 'pool'?"},
    {kGraph, "inputs: [pool]", "inputs: [sum]",
     "line 14: model.layers[3].inputs: names 'sum', which is not before this layer"},
    {kGraph, "name: right, inputs: [pool]", "name: left, inputs: [pool]",
     "line 14: model.layers[3].name: is 'left', which another layer has"},
    {kGraph, "name: left, out_channels: 4", "name: left, out_channels: 5",
     "line 15: model.layers[4].inputs: give 5 x 4 x 4 and 4 x 4 x 4; an add needs"},
    {kGraph, "out_features: 10", "out_features: 9",
     "line 17: model.layers[6].out_features: makes 9 values, must make one for each of "
     "model.num_classes, 10"},
    {kGraph, "image_size: 8", "image_size: 16",
     "line 3: data.format: is digits, but the model reads pictures of 1 x 16 x 16; write tensors"},
    {kGraph, "format: digits", "format: bytes",
     "line 3: data.format: is bytes, but the model reads pictures of 1 x 8 x 8; write tensors, or "
     "digits"},
    {kPreset, "lenet", "vgg",
     "line 4: model.preset: is 'vgg', must be none, lenet, alexnet, inception_v3 or resnet101"},
    {kPreset, "image_size: 32", "image_size: 12",
     "line 4: model.image_size: is 12, which does not fit model.preset: lenet with "
     "model.width_mult: 1: kernel_size of layer 'conv2' is 5 x 5, but it reads pictures of 4 x 4"},
    {kPreset, "preset: lenet, ", "", "model.layers: is empty; list the layers, or choose"},
    {kPreset, "image_size: 32", "image_size: 36", "line 3: data.path: "}};

class CnnInput : public BadInput {
 protected:
  CnnInput() {
    std::string lines, digit;
    for (int pixel = 0; pixel < 64; ++pixel) digit += "7,";
    for (int line = 0; line < 20; ++line) lines += digit + "3\n";
    folder_.write("digits.csv", lines);
    folder_.write("pictures.safetensors", pictures_of_class(7));
  }
};

TEST_F(CnnInput, IsReportedByFieldAndLine) {
  for (const auto& [text, from, to, message] : kBad) {
    expect_bad_config(text, from, to, message);
  }
}

/// Training reads all samples first.
TEST_F(CnnInput, HasLabelsBelowTheNumberOfClasses) {
  folder_.write("config.yaml", kPreset);
  EXPECT_EQ(run({"train", "config.yaml", "model.num_classes=7"}), kUsage) << log_.str();
  expect_said(
      {"data: sample 0 for training has 7 as value 3072, where the model takes whole "
       "numbers from 0 to 6"});
}

TEST_F(CnnInput, IsPlannedAndTrained) {
  for (const char* text : {kGraph, kPreset}) {
    folder_.write("config.yaml", text);
    EXPECT_EQ(run({"plan", "config.yaml"}), kDone) << log_.str();
    EXPECT_EQ(run({"train", "config.yaml"}), kDone) << log_.str();
    EXPECT_EQ(run({"train", "out/config.yaml", "--overwrite"}), kDone) << log_.str();
    std::filesystem::remove_all("out");
  }
}

}  // namespace
}  // namespace spillway::testing
