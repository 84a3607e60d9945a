#include "trainer/checkpoint/trial_history.h"

#include <nlohmann/json.hpp>

#include "spillway/error.h"
#include "trainer/storage/json_number.h"

namespace spillway {
namespace {

using Json = nlohmann::json;

template <typename Value>
void add_last(std::deque<Value>& values, const Value& value, std::size_t limit) {
  values.push_back(value);
  if (values.size() > limit) values.pop_front();
}

template <typename Value>
std::optional<Value> last_of(const std::deque<Value>& values) {
  return values.empty() ? std::nullopt : std::optional(values.back());
}

}  // namespace

TrialHistory::TrialHistory(std::size_t limit, std::optional<Rungs> rungs)
    : limit_(limit), rungs_(rungs) {}

void TrialHistory::add_step(double loss, double gradient_norm) {
  ++num_steps_;
  if (!first_loss_) first_loss_ = loss;
  add_last(losses_, loss, limit_);
  add_last(gradient_norms_, gradient_norm, limit_);
  if (rungs_) rung_means_.add(loss, *rungs_);
}

void TrialHistory::add_eval(std::int64_t step, double loss, const Metrics& metrics) {
  const bool is_of_other =
      step == taken_ && !eval_losses_.empty() && eval_losses_.back().first == step;
  if (is_of_other) return;
  add_last(eval_losses_, {step, loss}, limit_);
  if (!metrics.empty()) add_last(eval_metrics_, {step, metrics}, limit_);
  if (!rungs_ || step <= 0 || rungs_->from(step) != step) return;
  rung_evals_.emplace_back(step, loss);
  for (const auto& [name, value] : metrics) rung_metrics_[name].emplace_back(step, value);
}

Metrics TrialHistory::last_metrics() const {
  return eval_metrics_.empty() ? Metrics() : eval_metrics_.back().second;
}

RungLosses TrialHistory::rung_losses(const std::string& metric) const {
  if (metric == to_string(MetricKind::final_loss)) return rung_means_.means;
  if (metric == to_string(MetricKind::eval_loss)) return rung_evals_;
  const auto found = rung_metrics_.find(metric);
  return found == rung_metrics_.end() ? RungLosses() : found->second;
}

std::int64_t TrialHistory::num_dropped() const { return num_steps_ - std::ssize(losses_); }

std::optional<double> TrialHistory::last_loss() const { return last_of(losses_); }
std::optional<double> TrialHistory::last_gradient_norm() const { return last_of(gradient_norms_); }
std::optional<double> TrialHistory::last_eval_loss() const {
  return eval_losses_.empty() ? std::nullopt : std::optional(eval_losses_.back().second);
}

std::string TrialHistory::to_text() const {
  const auto earlier = [&](const auto& evals) {
    Json list = Json::array();
    for (const auto& eval : evals) {
      if (eval.first < num_steps_ || has_taken()) list.push_back(eval);
    }
    return list;
  };
  Json json{{"step", num_steps_},
            {"losses", losses_},
            {"gradient_norms", gradient_norms_},
            {"eval_losses", earlier(eval_losses_)}};
  if (const Json metrics = earlier(eval_metrics_); !metrics.empty()) json["eval_metrics"] = metrics;
  if (taken_ >= 0) json["taken"] = taken_;
  if (num_dropped() > 0) {
    json["dropped"] = num_dropped();
    json["first_loss"] = *first_loss_;
    if (rungs_) {
      json["rungs"] = {
          {"means", rung_means_.means}, {"sum", rung_means_.sum}, {"evals", earlier(rung_evals_)}};
      for (const auto& [name, values] : rung_metrics_) {
        json["rungs"]["metrics"][name] = earlier(values);
      }
    }
  }
  return json.dump();
}

TrialHistory TrialHistory::parse(const std::string& text, const std::string& file,
                                 std::size_t limit, std::optional<Rungs> rungs) {
  TrialHistory history(limit, rungs);
  try {
    const Json json = Json::parse(text);
    const std::vector<double> losses = json.at("losses"), norms = json.at("gradient_norms");
    const std::int64_t num_steps = integer_of(json.at("step"));
    const std::int64_t dropped = json.contains("dropped") ? integer_of(json.at("dropped")) : 0;
    if (dropped < 0 || num_steps < dropped || num_steps - dropped != std::ssize(losses) ||
        losses.size() != norms.size()) {
      throw CorruptData(file, "does not have a loss and a norm for each of its steps");
    }
    history.num_steps_ = dropped;
    if (dropped > 0) history.first_loss_ = json.at("first_loss").get<double>();
    for (std::size_t i = 0; i < losses.size(); ++i) history.add_step(losses[i], norms[i]);
    std::map<std::int64_t, Metrics> metrics;
    for (const Json& eval : json.value("eval_metrics", Json::array())) {
      metrics[integer_of(eval.at(0))] = metrics_of(eval.at(1));
    }
    for (const auto& [step, loss] : pairs_of(json.at("eval_losses"))) {
      history.add_eval(step, loss, metrics[step]);
    }
    if (dropped > 0 && rungs) {
      const Json& stored = json.at("rungs");
      history.rung_means_ = {.step = num_steps,
                             .sum = number_of(stored.at("sum")),
                             .means = pairs_of(stored.at("means"))};
      if (stored.contains("evals")) history.rung_evals_ = pairs_of(stored.at("evals"));
      const Json by_metric = stored.value("metrics", Json::object());
      for (const auto& [name, values] : by_metric.items()) {
        history.rung_metrics_[name] = pairs_of(values);
      }
    }
    if (json.contains("taken")) history.taken_ = integer_of(json.at("taken"));
  } catch (const Json::exception& error) {
    throw CorruptData(file, error.what());
  }
  return history;
}

}  // namespace spillway
