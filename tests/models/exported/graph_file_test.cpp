#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "spillway/error.h"
#include "spillway/exported.h"
#include "tests/support/check/thrown.h"
#include "tests/support/disk/temporary_folder.h"
#include "tests/support/models/exported_net.h"

namespace spillway::testing {
namespace {

/// What is wrong with a changed file of a network.
std::string problem_of(const std::function<void(json&)>& change) {
  ExportedNet net = exported_net();
  change(net.document);
  const TemporaryFolder folder;
  const std::string path = folder.write("net.spw", net.bytes());
  return thrown<CorruptData>([&] { exported_factory(path); }).what();
}

struct FileRefusal {
  const char* what;
  std::function<void(json&)> change;
  const char* problem;
};

json& call(json& document, std::size_t graph, std::size_t number) {
  return document["graphs"][graph]["nodes"][number];
}

const std::vector<FileRefusal>& refusals_of_documents() {
  static const std::vector<FileRefusal> all{
      {"an unknown key", [](json& d) { d["layers"][0]["colour"] = 1; },
       R"(layer 'embed': has the unknown key "colour")"},
      {"a missing key", [](json& d) { d["layers"][0].erase("output"); },
       "layer 'embed': lacks output"},
      {"a wrong type", [](json& d) { d["batch_size"] = "4"; },
       R"(batch_size is "4", must be an integer from 1 to 16777216)"},
      {"a graph that is not there", [](json& d) { d["layers"][1]["train"] = 5; },
       "layer 'norm': train is graph 5, must be below their number, 5"},
      {"a parameter that is not there",
       [](json& d) {
         d["layers"][0]["parameters"] = {0, 10};
       },
       "layer 'embed': parameters has 10, must be below their number, 10"},
      {"a constant that is not there", [](json& d) { d["constants"] = json::array(); },
       "layer 'body.0': constants has 0, must be below their number, 0"},
      {"a part outside of the row", [](json& d) { d["inputs"][0]["begin"] = 2; },
       "input 'x': ends at value 10, but a row has 9"},
      {"an input of an unknown type", [](json& d) { d["inputs"][0]["dtype"] = "float16"; },
       R"(input 'x': dtype is "float16", must be one of float32, int64, bool)"},
      {"two inputs of one name", [](json& d) { d["inputs"][1] = d["inputs"][0]; },
       "input 'x': has the name of another one"},
      {"a tensor that is not there", [](json& d) { d["parameters"][0]["name"] = "none"; },
       "parameter 'none': names the tensor 'none', which is not there"},
      {"a layer that reads a later one", [](json& d) { d["layers"][0]["inputs"] = {"norm"}; },
       "layer 'embed': reads 'norm', which is no input and no earlier layer"},
      {"a layer that nothing reads", [](json& d) { d["layers"][3]["inputs"] = {"norm"}; },
       "layer 'body.0': is read by no later layer and not by the loss"},
      {"two layers of one name", [](json& d) { d["layers"][1]["name"] = "embed"; },
       "layer 'embed': has the name of another one"},
      {"classes that are no whole numbers",
       [](json& d) {
         d["inputs"][1]["dtype"] = "float32";
         d["inputs"][1].erase("limit");
       },
       "loss: takes classes from 'class', whose dtype must be int64"},
      {"more classes than predictions",
       [](json& d) {
         d["inputs"][1]["shape"] = {2};
         d["inputs"][1]["begin"] = 0;
       },
       "loss: compares 4 values of layer 'head' with 8 of input 'class'"},
      {"a metric that the loss does not have", [](json& d) { d["metrics"] = {"r2"}; },
       "metrics has 'r2', which a model with this loss does not have"},
      {"a trained statistic", [](json& d) { d["parameters"][4]["trainable"] = true; },
       "parameter 'norm.running_mean': is a statistic, so it cannot be trainable"},
      {"nothing to train",
       [](json& d) {
         for (json& param : d["parameters"]) param["trainable"] = false;
       },
       "has no parameter to train"}};
  return all;
}

const std::vector<FileRefusal>& refusals_of_graphs() {
  static const std::vector<FileRefusal> all{
      {"a value before it exists", [](json& d) { call(d, 2, 1)["args"][0] = value(7); },
       "layer 'norm', graph 2, node 1 (aten::relu): reads value 7, but only 7 exist before it"},
      {"a result that does not exist", [](json& d) { d["graphs"][2]["result"] = 9; },
       "layer 'norm', graph 2: gives value 9, but has only 8"},
      {"an unknown operator", [](json& d) { call(d, 0, 1)["op"] = "aten::tanhh"; },
       "layer 'embed', training, node 1 (aten::tanhh): is no operator of this LibTorch"},
      {"an unknown overload", [](json& d) { call(d, 0, 1)["overload"] = "Tensor"; },
       "node 1 (aten::tanh.Tensor): is no operator"},
      {"a missing argument", [](json& d) { call(d, 0, 1)["args"] = json::array(); },
       "node 1 (aten::tanh): has 0 arguments, must have 1"},
      {"an argument of another type", [](json& d) { call(d, 3, 2)["args"][1] = "8"; },
       "node 2 (aten::split.Tensor): has another type of argument 'split_size' than"},
      {"a random operator",
       [](json& d) {
         call(d, 0, 1) = node("aten::bernoulli", "", {value(3), nullptr});
       },
       "node 1 (aten::bernoulli): draws random numbers, which only spillway::dropout may"},
      {"a change of the input",
       [](json& d) { call(d, 0, 1) = node("aten::tanh_", "", json::array({value(0)})); },
       "node 1 (aten::tanh_): writes to an input, parameter or constant of the layer"},
      {"a change of a view of a constant",
       [](json& d) { call(d, 3, 4) = node("aten::relu_", "", json::array({value(7)})); },
       "node 4 (aten::relu_): writes to an input, parameter or constant of the layer, or to a "
       "view"},
      {"too many dropouts",
       [](json& d) {
         const json drop = call(d, 0, 2);
         for (int i = 0; i < 16; ++i) d["graphs"][0]["nodes"].push_back(drop);
       },
       "is dropout number 17 of the layer, which may have 16"},
      {"a probability of 1", [](json& d) { call(d, 0, 2)["args"][1] = 1; },
       "drops with probability 1, must be at least 0 and below 1"},
      {"a statistic that nothing observes",
       [](json& d) { call(d, 2, 0) = node("aten::relu", "", json::array({value(0)})); },
       "layer 'norm': its training graph does not observe value 3, which is an averaged statistic"},
      {"an observation of no statistic", [](json& d) { call(d, 2, 0)["args"][3] = value(1); },
       "node 0 (spillway::batch_norm): observes value 1, which is no averaged statistic"}};
  return all;
}

void expect_refused(const std::vector<FileRefusal>& refusals) {
  for (const FileRefusal& refusal : refusals) {
    SCOPED_TRACE(refusal.what);
    const std::string problem = problem_of(refusal.change);
    EXPECT_NE(problem.find(refusal.problem), std::string::npos) << problem;
    EXPECT_NE(problem.find("net.spw"), std::string::npos) << problem;
  }
}

TEST(GraphFile, RefusesDocumentsWithThePlaceOfTheProblem) {
  expect_refused(refusals_of_documents());
}

TEST(GraphFile, RefusesGraphsWithThePlaceOfTheProblem) { expect_refused(refusals_of_graphs()); }

TEST(GraphFile, RefusesANewerVersion) {
  ExportedNet net = exported_net();
  net.document["version"] = 2;
  net.document["new"] = true;
  const TemporaryFolder folder;
  const std::string path = folder.write("net.spw", net.bytes());
  EXPECT_EQ(thrown<NewerFormat>([&] { exported_info(path); }).version, 2u);
}

TEST(GraphFile, RefusesOtherFiles) {
  const TemporaryFolder folder;
  const auto expect = [&](const std::string& path, const std::string& expected) {
    const std::string said = thrown<Error>([&] { exported_info(path); }).what();
    EXPECT_NE(said.find(expected), std::string::npos) << said;
  };
  expect(folder / "none", "cannot be read");
  expect(folder.path(), "is a folder");
  expect(folder.write("text", "not a model"), "claims that its header has");
  expect(folder.write("words.spw", exported_file("words", {})), "not JSON");
}

TEST(GraphFile, RefusesTensorsThatNothingNames) {
  ExportedNet net = exported_net();
  net.tensors.emplace_back("more", at::zeros({2}));
  const TemporaryFolder folder;
  const std::string path = folder.write("net.spw", net.bytes());
  const std::string said = thrown<CorruptData>([&] { exported_info(path); }).what();
  EXPECT_NE(said.find("tensor 'more': is neither a parameter nor a constant"), std::string::npos)
      << said;
}

TEST(GraphFile, SkipsTheRestOfAStateDict) {
  ExportedNet net = exported_net();
  net.tensors.emplace_back("state_dict.more", at::zeros({2}));
  const TemporaryFolder folder;
  EXPECT_EQ(exported_info(folder.write("net.spw", net.bytes())).name, "Net");
}

/// The operators that this draws nothing with may be there.
TEST(GraphFile, AcceptsRandomOperatorsThatDropNothing) {
  ExportedNet net = exported_net();
  call(net.document, 0, 1) = node("aten::dropout", "", {value(3), 0.5, false});
  const TemporaryFolder folder;
  EXPECT_NO_THROW(exported_factory(folder.write("net.spw", net.bytes())));
}

}  // namespace
}  // namespace spillway::testing
