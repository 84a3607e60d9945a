#include <gtest/gtest.h>

#include <filesystem>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/cli/program.h"
#include "tests/support/check/bad_input.h"

namespace spillway::testing {
namespace {

/// What each case changes one line of.
constexpr const char* kConfig[] = {
    "output_dir: out",                // 1
    "devices: [{memory: 1MiB}]",      // 2
    "host_memory: 1GiB",              // 3
    "model:",                         // 4
    "  num_hidden_layers: 2",         // 5
    "  hidden_size: 16",              // 6
    "  num_attention_heads: 4",       // 7
    "  vocab_size: 256",              // 8
    "  max_position_embeddings: 16",  // 9
    "data:",                          // 10
    "  path: text.txt",               // 11
    "train:",                         // 12
    "  batch_size: 4",                // 13
    "  virtual_nodes: 2",             // 14
    "  max_steps: 1",                 // 15
};

struct Case {
  const char* name;
  std::size_t line;
  const char* text;  ///< what stands there instead
  ExitCode code;
  std::vector<std::string> messages;  ///< each a part of standard error, by its lines
};

const Case kCases[] = {
    {"unknown_key",
     15,
     "  learning_rat: 1",
     kUsage,
     {"line 15: train.learning_rat: unknown key; did you mean train.learning_rate?"}},
    {"key_of_another_section",
     15,
     "  dropout: 0.5",
     kUsage,
     {"line 15: train.dropout: unknown key; did you mean model.dropout?"}},
    {"wrong_type",
     13,
     "  batch_size: four",
     kUsage,
     {"line 13: train.batch_size: 'four' is no whole number; write a whole number from 1 to"}},
    {"list_for_a_number",
     13,
     "  batch_size: [4]",
     kUsage,
     {"line 13: train.batch_size: a list stands where one value belongs"}},
    {"value_for_a_section",
     10,
     "data: text.txt\nsweep:",
     kUsage,
     {"line 10: data: 'text.txt' stands where a group of keys belongs"}},
    {"out_of_range",
     15,
     "  max_steps: 0",
     kUsage,
     {"line 15: train.max_steps: '0' is out of range; write a whole number from 1 to"}},
    {"not_a_number",
     15,
     "  learning_rate: nan",
     kUsage,
     {"line 15: train.learning_rate: 'nan' is no number"}},
    {"too_many_digits",
     13,
     "  batch_size: 99999999999999999999",
     kUsage,
     {"line 13: train.batch_size: '99999999999999999999' is out of range"}},
    {"missing_data",
     11,
     "  path: nowhere.txt",
     kUsage,
     {"line 11: data.path: 'nowhere.txt' cannot be read: No such file or directory"}},
    {"empty_data",
     11,
     "  path: empty.txt",
     kUsage,
     {"line 11: data.path: 'empty.txt' is empty; name files that have bytes"}},
    {"folder_without_data",
     11,
     "  path: hollow",
     kUsage,
     {"line 11: data.path: 'hollow' is a folder without a file that has bytes"}},
    {"data_below_one_sequence",
     11,
     "  path: short.txt",
     kUsage,
     {"line 11: data.path: holds 5 bytes, less than one sample of sequence length 16"}},
    {"virtual_nodes_that_do_not_divide",
     14,
     "  virtual_nodes: 3",
     kUsage,
     {"line 14: train.virtual_nodes: is 3, which does not divide train.batch_size 4"}},
    {"heads_that_do_not_divide",
     7,
     "  num_attention_heads: 3",
     kUsage,
     {"line 7: model.num_attention_heads: is 3, which does not divide model.hidden_size 16"}},
    {"dropout_of_all_but_nothing",
     6,
     "  dropout: 0.999999999",
     kUsage,
     {"line 6: model.dropout: is 0.999999999, which is 1 in single precision, must be at least 0"}},
    {"nothing_but_warm_up",
     15,
     "  warmup_ratio: 1",
     kUsage,
     {"line 15: train.warmup_ratio: '1' is out of range; write a number of at least 0, below 1"}},
    {"no_devices",
     2,
     "devices: []",
     kUsage,
     {"line 2: devices: an empty list stands where a list with"}},
    {"activations_take_all",
     3,
     "host_memory: 1GiB\nactivation_share: 1",
     kUsage,
     {"line 4: activation_share: '1' is out of range; write a number of at least 0, at"}},
    {"budget_in_words",
     2,
     "devices: [{memory: lots}]",
     kUsage,
     {"line 2: devices[0].memory: 'lots' is no size; write a size such as 12MiB"}},
    {"budget_beyond_all",
     2,
     "devices: [{memory: 300TiB}]",
     kUsage,
     {"line 2: devices[0].memory: '300TiB' is out of range; write 4.00 KiB to 16.00 TiB"}},
    {"budget_below_a_page",
     2,
     "devices: [{memory: 1}]",
     kUsage,
     {"line 2: devices[0].memory: '1' is out of range"}},
    {"budget_overflows",
     2,
     "devices: [{memory: 99999999999GiB}]",
     kUsage,
     {"line 2: devices[0].memory: '99999999999GiB' is no size"}},
    {"link_too_slow",
     2,
     "devices: [{memory: 1MiB, link: 1kB/s}]",
     kUsage,
     {"line 2: devices[0].link: '1kB/s' is out of range; write at least 1.00 MiB/s, or 0"}},
    {"device_faster_than_itself",
     2,
     "devices: [{memory: 1MiB, slowdown: 0.5}]",
     kUsage,
     {"line 2: devices[0].slowdown: '0.5' is out of range; write a number of at least 1, at most "
      "1000"}},
    // Whatever is missing: the driver, a newer one, a GPU, CUDA in this build, layers for it.
    {"no_gpu_to_train_on",
     2,
     "devices: [{memory: 1MiB}, {kind: cuda, memory: 1MiB}]",
     kUsage,
     {"line 2: devices[1].kind: is cuda, but ", "use kind: cpu\n"}},
    {"a_cpu_device_is_no_gpu",
     2,
     "devices: [{index: 1, memory: 1MiB}]",
     kUsage,
     {"line 2: devices[0].index: is of devices of kind cuda, and this one's is cpu; remove it"}},
    {"a_gpu_imitates_nothing",
     2,
     "devices: [{kind: cuda, memory: 1MiB, link: 1GB/s, slowdown: 2, fault: {kind: fail}}]",
     kUsage,
     {"line 2: devices[0].link: is of devices of kind cpu, and this one's is cuda; remove it",
      "line 2: devices[0].slowdown: is of devices of kind cpu", "line 2: devices[0].fault: is of"}},
    {"gpu_below_the_first",
     2,
     "devices: [{kind: cuda, index: -1, memory: 1MiB}]",
     kUsage,
     {"line 2: devices[0].index: '-1' is out of range"}},
    {"unknown_fault",
     2,
     "devices: [{memory: 1MiB, fault: {kind: explode}}]",
     kUsage,
     {"line 2: devices[0].fault.kind: 'explode' is not known; write one of none, fail, hang, "
      "shrink"}},
    {"fault_before_the_start",
     2,
     "devices: [{memory: 1MiB, fault: {kind: fail, after_ops: -1}}]",
     kUsage,
     {"line 2: devices[0].fault.after_ops: '-1' is out of range"}},
    {"budget_too_small",
     2,
     "devices: [{memory: 8KiB}]",
     kDoesNotFit,
     {"does not fit: it needs ", "of device memory, the budget is 8.00 KiB", "; raise the memory"}},
    {"host_too_small",
     3,
     "host_memory: 4KiB",
     kDoesNotFit,
     {"does not fit: it needs ", "of host memory, the budget is 4.00 KiB", "; raise that budget"}},
    {"no_folder_for_homes",
     3,
     "home_path: nowhere",
     kUsage,
     {"line 3: home_path: 'nowhere' cannot hold homes: No such file or directory; name a folder"}},
    {"homes_in_a_file",
     3,
     "home_path: text.txt",
     kUsage,
     {"line 3: home_path: 'text.txt' cannot hold homes: Not a directory; name a folder that can"}},
    {"homes_where_nothing_can_be_written",
     3,
     "home_path: /proc",
     kUsage,
     {"line 3: home_path: '/proc' cannot hold homes: "}},
    {"list_for_a_folder",
     3,
     "home_path: [a, b]",
     kUsage,
     {"line 3: home_path: a list stands where one value belongs; write a folder"}},
    {"lanes_in_other_words",
     15,
     "  lanes: all",
     kUsage,
     {"line 15: train.lanes: 'all' is no whole number; write a whole number from 1 to 65536, or "
      "auto"}},
    {"most_lanes_below_lanes",
     14,
     "  virtual_nodes: 4\n  lanes: 2\n  max_lanes: 1",
     kUsage,
     {"line 16: train.max_lanes: is 1, below train.lanes 2"}},
    {"more_lanes_than_groups",
     14,
     "  virtual_nodes: 4\n  reduction_groups: 2\n  max_lanes: 3",
     kUsage,
     {"line 16: train.max_lanes: is 3, above train.reduction_groups 2"}},
    {"priority_beyond_all",
     15,
     "  priority: 101",
     kUsage,
     {"line 15: train.priority: '101' is out of range; write a whole number from 1 to 100"}},
    {"unknown_sharing",
     15,
     "scheduling: {sharing: fair}",
     kUsage,
     {"line 15: scheduling.sharing: 'fair' is not known; write one of none, priority, wfs, fill"}},
    {"unknown_rule",
     15,
     "  autoscale: {rule: troughput}",
     kUsage,
     {"line 15: train.autoscale: 'troughput' is no heuristic; did you mean 'throughput'?"}},
    {"no_rule",
     15,
     "  autoscale: [{threshold: 0.2}]",
     kUsage,
     {"line 15: train.autoscale[0].rule: is missing; write one of throughput, linear, stepped, "
      "straggler"}},
    {"rule_in_one_word",
     15,
     "  autoscale: throughput",
     kUsage,
     {"line 15: train.autoscale: 'throughput' stands where a group of keys belongs"}},
    {"unknown_parameter_of_a_rule",
     15,
     "  autoscale: [{rule: throughput, treshold: 0.2}]",
     kUsage,
     {"line 15: train.autoscale.treshold: is unknown to 'throughput'; did you mean 'threshold'?"}},
    {"parameter_of_a_rule_out_of_range",
     15,
     "  autoscale: [{rule: linear},\n    {rule: straggler, share: 2}]",
     kUsage,
     {"line 16: train.autoscale[1].share: is 2, must be above 0 and at most 1"}},
    {"parameter_of_a_rule_in_words",
     15,
     "  autoscale: {rule: linear, loss: much}",
     kUsage,
     {"line 15: train.autoscale.loss: 'much' is no number"}},
    {"lanes_without_devices",
     15,
     "  lanes: 2",
     kUsage,
     {"line 15: train.lanes: is 2, but there is 1 device; a device runs one lane of a trial"}},
    {"tensor_beyond_all",
     6,
     "  hidden_size: 16777216",
     kUsage,
     {"line 6: model.hidden_size: is too large: a tensor of"}},
    {"embedding_beyond_all",
     8,
     "  vocab_size: 16777216",
     kDoesNotFit,
     {"even without the activations of layer", "device memory, the budget is 1.00 MiB"}},
    {"batch_beyond_all",
     13,
     "  batch_size: 16777216",
     kDoesNotFit,
     {"even without the activations of layer", "use more virtual nodes"}},
    {"layers_beyond_all",
     5,
     "  num_hidden_layers: 65536",
     kUsage,
     {"line 5: model.num_hidden_layers: '65536' is out of range; write a whole number"}},
    {"virtual_nodes_beyond_all",
     14,
     "  virtual_nodes: 16777216",
     kUsage,
     {"line 14: train.virtual_nodes: '16777216' is out of range"}},
    {"ops_beyond_all",
     5,
     "  num_hidden_layers: 1000\n  initializer_range: 0.02",
     kUsage,
     {"line 15: train.virtual_nodes: is 65536, which for 2002 layers makes too many ops"}},
    {"freezes_nothing",
     9,
     "  max_position_embeddings: 16\n  freeze: [nothing.*]",
     kUsage,
     {"line 10: model.freeze: 'nothing.*' matches no parameter"}},
    {"no_yaml", 2, "devices: [", kUsage, {"no valid YAML"}},
    {"key_twice",
     14,
     "  batch_size: 4",
     kUsage,
     {"line 14: train.batch_size: stands here a second time"}},
    {"all_in_one_go",
     15,
     "  learning_rat: 1\n  lanes: x\n  momentum: 2",
     kUsage,
     {"line 15: train.learning_rat: unknown key; did you mean train.learning_rate?\n"
      "spillway: line 16: train.lanes: 'x' is no whole number",
      "\nspillway: line 17: train.momentum: '2' is out of range"}},
};

void PrintTo(const Case& bad, std::ostream* out) { *out << bad.name; }

std::string config_with(const Case& bad) {
  std::string text;
  for (std::size_t i = 0; i < std::size(kConfig); ++i)
    text += std::string(i + 1 == bad.line ? bad.text : kConfig[i]) + "\n";
  return text;
}

class BadConfig : public BadInput, public ::testing::WithParamInterface<Case> {};

TEST_P(BadConfig, IsSaidByFieldAndLineAndNothingIsWritten) {
  const Case& bad = GetParam();
  auto text = config_with(bad);
  if (std::string_view(bad.name) == "ops_beyond_all")
    text.replace(text.find("  batch_size: 4\n  virtual_nodes: 2"), 34,
                 "  batch_size: 65536\n  virtual_nodes: 65536");
  folder_.write("config.yaml", text);
  EXPECT_EQ(run({"train", "config.yaml"}), bad.code) << log_.str();
  expect_said(bad.messages);
  EXPECT_EQ(out_.str(), "");
  EXPECT_EQ(run({"plan", "config.yaml"}), bad.code) << log_.str();
  // A plan says in its table what does not fit.
  if (bad.code == kUsage) {
    expect_said(bad.messages);
    EXPECT_EQ(out_.str(), "");
  } else {
    for (const auto& message : bad.messages)
      EXPECT_NE(out_.str().find(message), std::string::npos) << message << "\nin " << out_.str();
  }
  EXPECT_FALSE(std::filesystem::exists("out"));
}

INSTANTIATE_TEST_SUITE_P(All, BadConfig, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

/// A place for outputs that cannot be, and what is said of it.
struct BadPlace {
  std::string place, message;
};

TEST_F(BadInput, OutputsNeedAPlace) {
  const Case good{"", 0, "", kDone, {}};
  folder_.write("config.yaml", config_with(good));
  folder_.write("mine/thesis.tex", "years of work");
  ASSERT_EQ(run({"train", "config.yaml", "output_dir=earlier"}), kDone) << log_.str();
  const auto before = folder_.read("earlier/events.jsonl");
  const std::vector<BadPlace> places{
      {"text.txt", "is a file; choose another"},
      {"text.txt/run", "is a file; choose another"},
      {"mine", "holds files that no run has written"},
      {"earlier", "holds an earlier run; add --overwrite to replace it, continue it with"},
      {"/proc/spillway", "cannot be written: /proc: No such file or directory; choose another"},
      {"deep/" + std::string(300, 'x'), "is too long a path"}};
  for (const auto& [place, message] : places) {
    const std::string override = "output_dir=" + place;
    EXPECT_EQ(run({"train", "config.yaml", override.c_str()}), kUsage) << place;
    expect_said({"spillway: output_dir: ", message});
    EXPECT_EQ(out_.str(), "");
  }
  EXPECT_FALSE(std::filesystem::exists("deep"));
  EXPECT_EQ(folder_.read("earlier/events.jsonl"), before);
  EXPECT_EQ(folder_.read("text.txt"), std::string(2000, 'x'));
}

TEST_F(BadInput, ArgumentsAreChecked) {
  folder_.write("config.yaml", config_with({"", 0, "", kDone, {}}));
  const std::vector<std::pair<std::vector<const char*>, std::string>> all{
      {{}, "subcommand is required"},
      {{"trian", "config.yaml"}, "there is no command 'trian'; did you mean 'train'?"},
      {{"train"}, "config is required"},
      {{"train", "nowhere.yaml"}, "nowhere.yaml"},
      {{"train", "hollow"}, "hollow"},
      {{"train", "config.yaml", "--jsn"}, "--jsn"},
      {{"train", "config.yaml", "train.lanes"}, "'train.lanes' is no override; write it as key="},
      {{"plan", "config.yaml", "train.lanez=2"}, "did you mean train.lanes?"},
      {{"results"}, "folder is required"},
      {{"results", "nowhere"}, "'nowhere' does not exist"},
      {{"results", "config.yaml"}, "'config.yaml' is a file"},
      {{"results", "hollow"}, "no file events.jsonl"},
      {{"resume"}, "folder is required"},
      {{"resume", "nowhere"}, "'nowhere' does not exist"},
      {{"resume", "config.yaml"}, "'config.yaml' is a file"},
      {{"resume", "hollow"}, "'hollow' holds no run"},
      {{"verify", "hollow"}, "no file events.jsonl"},
      {{"plan", "config.yaml", "checkpoint.kep=2"}, "did you mean checkpoint.keep?"},
      {{"plan", "config.yaml", "checkpoint.keep=-1"},
       "checkpoint.keep: '-1' is out of range; write a whole number from 0 to 1000"},
      {{"completion", "fish"}, "fish"}};
  for (const auto& [arguments, message] : all) {
    EXPECT_EQ(run(arguments), kUsage) << message;
    expect_said({message});
    EXPECT_EQ(out_.str(), "") << message;
  }
  EXPECT_FALSE(std::filesystem::exists("out"));
}

}  // namespace
}  // namespace spillway::testing
