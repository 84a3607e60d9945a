#include "core/safetensors/safetensors.h"
#include "models/exported/adapter.h"
#include "models/graphs/spec_json.h"
#include "spillway/error.h"
#include "tests/fuzz/byte_source.h"
#include "tests/fuzz/input.h"

namespace spillway {
namespace {

using testing::require;
using testing::source_of;

void require_below(const std::vector<int>& numbers, std::size_t size) {
  for (const int number : numbers)
    require(number >= 0 && static_cast<std::size_t>(number) < size, "numbers lie in their list");
}

void require_earlier(const std::vector<ExportedSource>& sources, std::size_t num_inputs,
                     std::size_t layer) {
  for (const ExportedSource& source : sources) {
    require((source.input < 0) != (source.layer < 0), "a source is an input or a layer");
    if (source.input >= 0) require_below({source.input}, num_inputs);
    if (source.layer >= 0) require_below({source.layer}, layer);
  }
}

/// What the code that trains a model takes for granted.
void require_consistent(const ExportedSpec& spec) {
  require(!spec.layers.empty() && spec.batch_size > 0, "there is something to train");
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    const ExportedLayer& layer = spec.layers[l];
    require_earlier(layer.inputs, spec.inputs.size(), l);
    require_below(layer.params, spec.params.size());
    require_below(layer.constants, spec.constants.size());
    require_below({layer.train, layer.eval}, spec.graphs.size());
    const std::size_t given = layer.inputs.size() + layer.params.size() + layer.constants.size();
    for (const int number : {layer.train, layer.eval}) {
      const ExportedGraph& graph = spec.graphs[static_cast<std::size_t>(number)];
      std::size_t values = given;
      for (const GraphNode& node : graph.nodes) {
        require(node.num_outputs >= 0, "there is no negative number of values");
        values += static_cast<std::size_t>(node.num_outputs);
      }
      require_below({graph.result}, values);
    }
  }
  require_earlier(spec.loss.inputs, spec.inputs.size(), spec.layers.size());
  require_below(spec.loss.constants, spec.constants.size());
  for (const ExportedInput& input : spec.inputs) {
    require(input.begin >= 0 && input.elements() <= spec.row_elements - input.begin,
            "a part lies in its row");
  }
}

}  // namespace
}  // namespace spillway

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace spillway;
  try {
    const Safetensors file(source_of(testing::to_string(data, size)));
    const auto document = file.metadata().find("spillway");
    if (document == file.metadata().end()) return 0;
    ExportedSpec spec = exported_spec(document->second, file, "input");
    require_consistent(spec);
    add_adapter(spec, {.dropout = 0.1, .target_modules = {"all-linear"}});
    require_consistent(spec);
  } catch (const Error&) {
  }
  return 0;
}
