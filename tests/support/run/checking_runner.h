#pragma once

#include <atomic>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>

#include "trainer/runtime/op_runner.h"

namespace spillway::testing {

/// A runner without arithmetic: every buffer holds a pattern of (job, buffer, step, times written),
/// or of its content if jobs share it,
/// and every op checks all bytes that it reads and writes all bytes of its outputs. A byte that
/// moved wrongly, early or late makes the op fail.
class CheckingRunner final : public OpRunner {
 public:
  void add(JobId job, std::shared_ptr<const JobPlan> plan) { plans_[job] = std::move(plan); }
  void fail_at(JobId job, std::uint64_t op) {
    failing_job_ = job;
    fails_at_ = op;
  }
  // Set before the run.
  std::function<void(const OpCall&)> before_op;  ///< called on the device's thread
  /// The body of an op; by default it checks and writes its bytes.
  std::function<void(const OpCall&)> compute;
  std::atomic<const Device*> too_cold = nullptr;  ///< warming this device fails

  std::uint64_t ops() const { return ops_; }
  /// Of these, the ones that ended on a device that was not lost.
  std::uint64_t kept() const { return kept_; }
  std::uint64_t warmed() const { return warmed_; }

  std::function<void(JobId, const std::byte* home)> admitted;  ///< set before the run
  void admit(JobId job, const Home& home) override {
    if (admitted) admitted(job, home.at(0));
    const JobPlan& plan = *plans_.at(job);
    for (int b : plan.layout.weights) {
      const Bytes place = spec(plan, b).home;
      if (!home.is_written(place)) write(plan, home.at(place), job, b, 0, 0);
    }
  }

  Keep run_op(const OpCall& call) override {
    ++ops_;
    if (call.job == failing_job_ && ++ops_of_failing_ == fails_at_) {
      throw std::runtime_error("made to fail");
    }
    if (before_op) before_op(call);
    compute ? compute(call) : touch(call);
    return [this] { ++kept_; };
  }

  /// Throws if bytes are wrong.
  static void touch(const OpCall& call) {
    const UnitSpec& unit = call.unit_spec();
    for (int b : unit.weights) check(*call.plan, call.memory(b), call.job, b, call.step, 0);
    for (int b : call.op_spec().inputs) {
      check(*call.plan, call.memory(b), call.job, b, call.step, 0);
    }
    if (call.has_graph) check_graph(call);
    const int nth = call.op - unit.first_op;
    for (int b : unit.sums) {
      if (nth > 0) check(*call.plan, call.memory(b), call.job, b, call.step, nth);
      const bool last = nth + 1 == unit.num_ops;
      write(*call.plan, call.memory(b), call.job, b, call.step, last ? 0 : nth + 1);
    }
    for (int b : call.op_spec().outputs) {
      write(*call.plan, call.memory(b), call.job, b, call.step, 0);
    }
  }

  std::function<bool()> exchanging;  ///< whether an exchange is lost; set before the run
  void exchange(const HostCall&, const Ended& ended) override { ended(exchanging && exchanging()); }

  std::function<void(JobId, JobEnd)> released;  ///< set before the run
  void release(JobId job, JobEnd end) override {
    if (released) released(job, end);
  }

  void warm(Device& device) override {
    ++warmed_;
    if (&device == too_cold) throw std::runtime_error("too cold");
  }

  void run_host_op(const HostCall& call) override {
    const HostOpSpec& op = call.program->host_ops[index(call.op)];
    const Layout& layout = call.plan->layout;
    switch (op.kind) {
      case HostOpKind::load:
        for (int b : op.index == 1 ? layout.eval_batch : layout.batch) {
          write(*call.plan, call.home->at(spec(*call.plan, b).home), call.job, b, call.step, 0);
        }
        break;
      case HostOpKind::reduce:
        check_sums(call, op.index);
        break;
      case HostOpKind::take_weights:
        check(*call.plan, call.home->at(spec(*call.plan, op.index).home), call.job, op.index,
              call.step, 0);
        break;
      case HostOpKind::update:
      case HostOpKind::update_part:
        check(*call.plan, call.home->at(spec(*call.plan, op.index).home), call.job, op.index,
              call.step - 1, 0);
        if (Home::is_shared(spec(*call.plan, op.index).home)) break;
        write(*call.plan, call.home->at(spec(*call.plan, op.index).home), call.job, op.index,
              call.step, 0);
        break;
      case HostOpKind::finish:
        for (int b : layout.weights) {
          check(*call.plan, call.home->at(spec(*call.plan, b).home), call.job, b, call.step, 0);
        }
        break;
      default:
        break;
    }
  }

 private:
  /// What a graph needs: the addresses of weights and boundaries, at one step.
  struct Graph {
    std::int64_t step = 0;
    std::map<int, const std::byte*> needed;
    bool operator==(const Graph&) const = default;
  };
  static void check_graph(const OpCall& call) {
    Graph graph{call.step, {}};
    for (int b : call.unit_spec().weights) graph.needed[b] = call.memory(b);
    for (int b : call.op_spec().inputs) {
      const bool is_boundary = spec(*call.plan, b).kind != BufferKind::gradient;
      if (is_boundary) graph.needed[b] = call.memory(b);
    }
    if (call.op_spec().kind == OpKind::forward) {
      return call.graphs->keep(call.graph(), call.graph_bytes(), std::make_shared<Graph>(graph));
    }
    const auto kept = std::static_pointer_cast<Graph>(call.graphs->take(call.graph()));
    if (!kept) throw std::runtime_error("a graph is not there");
    if (!(*kept == graph)) throw std::runtime_error("what a graph needs has moved");
  }

  static std::size_t index(int i) { return static_cast<std::size_t>(i); }
  static const BufferSpec& spec(const JobPlan& plan, int buffer) {
    return plan.layout.buffers[index(buffer)];
  }

  /// Every sum buffer of the layer with a home has arrived there.
  static void check_sums(const HostCall& call, int layer) {
    const Layout& layout = call.plan->layout;
    for (const auto& slots : layout.sum_buffers) {
      for (const std::vector<int>& by_layer : slots) {
        const int b = by_layer[index(layer)];
        if (b < 0 || layout.buffers[index(b)].home == kNoHome) continue;
        const BufferSpec& sum = layout.buffers[index(b)];
        check(*call.plan, call.home->at(sum.home), call.job, b, call.step, 0, sum.home_bytes);
      }
    }
  }

  static std::uint64_t pattern(const JobPlan& plan, JobId job, int buffer, std::int64_t step,
                               int times) {
    const int shared = spec(plan, buffer).shared;
    if (shared >= 0) return std::hash<std::string>()(plan.layout.shared[index(shared)].content);
    std::uint64_t x = job.value;
    for (const std::int64_t part : {std::int64_t{buffer}, step, std::int64_t{times}}) {
      x = (x ^ static_cast<std::uint64_t>(part)) * 0x9E3779B97F4A7C15u;
      x ^= x >> 31;
    }
    x ^= x >> 29;
    return x * 0xD6E8FEB86659FD93ull;
  }
  static void write(const JobPlan& plan, std::byte* data, JobId job, int buffer, std::int64_t step,
                    int times) {
    std::uint64_t word = pattern(plan, job, buffer, step, times);
    for (Bytes i = 0; i < spec(plan, buffer).bytes; i += 8, ++word) std::memcpy(data + i, &word, 8);
  }
  static void check(const JobPlan& plan, const std::byte* data, JobId job, int buffer,
                    std::int64_t step, int times) {
    check(plan, data, job, buffer, step, times, spec(plan, buffer).bytes);
  }
  static void check(const JobPlan& plan, const std::byte* data, JobId job, int buffer,
                    std::int64_t step, int times, Bytes bytes) {
    std::uint64_t word = pattern(plan, job, buffer, step, times);
    for (Bytes i = 0; i < bytes; i += 8, ++word) {
      if (std::memcmp(data + i, &word, 8) != 0) {
        throw std::runtime_error("wrong bytes in buffer " + std::to_string(buffer) + " of job " +
                                 std::to_string(job.value) + " at step " + std::to_string(step));
      }
    }
  }

  std::map<JobId, std::shared_ptr<const JobPlan>> plans_;
  JobId failing_job_;
  std::uint64_t fails_at_ = 0;
  std::atomic<std::uint64_t> ops_ = 0, ops_of_failing_ = 0, kept_ = 0, warmed_ = 0;
};

}  // namespace spillway::testing
