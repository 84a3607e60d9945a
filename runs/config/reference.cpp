#include <fmt/ranges.h>

#include "runs/config/run_fields.h"
#include "runs/config/yaml_writer.h"

namespace spillway {
namespace {

std::string coded(const std::string& text) { return "`" + text + "`"; }

/// What a value may be, for a table.
template <typename Value, typename Range>
std::string kind_of(const Value& value, const Range& range) {
  return describe(value, range).substr(describe(value, range).find(' ') + 1);  // without article
}
std::string kind_of(Named auto value, AnyValue) {
  std::vector<std::string> names;
  for (const char* name : kNames<decltype(value)>) names.push_back(coded(name));
  return fmt::format("{}", fmt::join(names, ", "));
}
template <Named Item>
std::string kind_of(const std::vector<Item>&, AnyValue) {
  return "list of " + kind_of(Item{}, kAny);
}
std::string kind_of(bool, AnyValue) { return "`true`, `false`"; }
std::string kind_of(const std::string&, AnyValue) { return "string"; }
std::string kind_of(const std::filesystem::path&, AnyValue) { return "path"; }
std::string kind_of(const std::vector<std::string>&, TextList) {
  return "string or list of strings";
}
std::string kind_of(const std::vector<AutoscaleRule>&, AnyValue) { return "rule or list of rules"; }
std::string kind_of(const std::array<std::int64_t, 2>&, const IntRange& range) {
  return fmt::format("integer from {} to {}, or list of two", range.min, range.max);
}
std::string kind_of(const std::vector<std::int64_t>&, const IntRange& range) {
  return fmt::format("list of integers from {} to {}", range.min, range.max);
}

const char* text_of(InContract in_contract) {
  switch (in_contract) {
    case InContract::no:
      return "";
    case InContract::of_sgd:
      return "of `sgd`";
    case InContract::of_adamw:
      return "of `adamw`";
    case InContract::of_decay:
      return "of `warmup_stable_decay`";
    case InContract::yes:
    case InContract::unless_default:
    case InContract::by_content:
      return "yes";
  }
  return "";
}

/// The visitor that makes a row of a table for each field.
class TableWriter {
 public:
  explicit TableWriter(std::string& out, std::string prefix = "")
      : out_(out), prefix_(std::move(prefix)) {}

  template <typename Value, typename Range>
  void field(const std::string& key, const Value& value, const Range& range, const char* sentence,
             InContract in_contract = InContract::no) {
    const YamlNode node = YamlWriter::node_of(value, range);
    std::string standard = node.kind == YamlNode::Kind::scalar ? node.text : to_yaml(node);
    if (standard.ends_with('\n')) standard.pop_back();
    standard = standard.empty() ? "" : coded(standard);
    row(key, kind_of(value, range), key == required_ ? "required" : standard, in_contract,
        sentence);
  }
  template <typename Item, typename Visit>
  void list(const std::string& key, const std::vector<Item>&, const char* /*example*/,
            const char* sentence, const Visit&, InContract in_contract = InContract::no,
            MayBeEmpty /*may_be_empty*/ = MayBeEmpty::no) {
    row(key, "list", key == required_ ? "required" : "", in_contract, sentence);
  }
  template <typename Visit>
  void section(const std::string& key, const Visit& visit) {
    TableWriter inner(out_, prefix_ + key + ".");
    visit(inner);
  }
  void require_key(const char* key, const char* /*remedy*/) { required_ = key; }
  bool applies(bool /*condition*/) const { return true; }
  bool shows(bool /*condition*/) const { return true; }

 private:
  void row(const std::string& key, const std::string& kind, const std::string& standard,
           InContract in_contract, const char* sentence) {
    out_ += fmt::format("| `{}{}` | {} | {} | {} | {} |\n", prefix_, key, kind, standard,
                        text_of(in_contract), sentence);
  }

  std::string& out_;
  std::string prefix_, required_;
};

/// The visitor that takes the first field alone.
class FirstField {
 public:
  explicit FirstField(TableWriter& table) : table_(table) {}
  template <typename... Field>
  void field(const Field&... field) {
    table_.field(field...);
  }
  template <typename Visit>
  void section(const char* /*key*/, const Visit& /*visit*/) {}
  template <typename... List>
  void list(const List&... /*list*/) {}
  void require_key(const char* /*key*/, const char* /*remedy*/) {}
  bool applies(bool /*condition*/) const { return false; }
  bool shows(bool /*condition*/) const { return false; }

 private:
  TableWriter& table_;
};

}  // namespace

std::string reference_tables() {
  std::string text;
  const auto add = [&](const char* name, const auto& visit) {
    text += fmt::format(
        "[{}]\n| key | value | default | contract | meaning |\n|---|---|---|---|---|\n", name);
    TableWriter table(text);
    visit(table);
  };
  const RunConfig run;
  const CnnLayerConfig layer;
  const DeviceConfig device;
  const LinkConfig link;
  const EarlyTerminate early;
  const AdapterConfig adapter;
  add("top", [&](auto& v) { visit_top(run, v); });
  add("devices", [&](auto& v) { visit_device(device, v); });
  add("links", [&](auto& v) { visit_link(link, v); });
  add("model", [&](auto& v) {
    FirstField family(v);
    visit_model(run, family);
  });
  add("gpt", [&](auto& v) { visit_gpt(run.gpt, v); });
  add("mlp", [&](auto& v) { visit_mlp(run.mlp, v); });
  add("resnet", [&](auto& v) { visit_resnet(run.resnet, v); });
  add("cnn", [&](auto& v) { visit_cnn(run.cnn, v); });
  add("cnn_layers", [&](auto& v) { visit_cnn_layer(layer, v); });
  add("rnn", [&](auto& v) { visit_rnn(run.rnn, v); });
  add("torch", [&](auto& v) { visit_torch(run.torch, v); });
  add("adapter", [&](auto& v) {
    v.require_key("target_modules", "");
    visit_adapter(adapter, v);
  });
  add("data", [&](auto& v) { visit_data(run.data, v); });
  add("train", [&](auto& v) {
    visit_train(run.train, v);
    visit_epochs(run, v);
    visit_strategy(run, v);
  });
  add("scheduling", [&](auto& v) { visit_scheduling(run, v); });
  add("checkpoint", [&](auto& v) { visit_checkpoint(run.checkpoint, v); });
  add("hosts", [&](auto& v) { visit_hosts(run.session.hosts, v); });
  add("sweep", [&](auto& v) { visit_sweep(run.sweep, v); });
  add("early_terminate", [&](auto& v) { visit_early_terminate(early, v); });
  return text;
}

}  // namespace spillway
