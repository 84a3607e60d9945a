#include "scheduler/engine/policy.h"

#include "spillway/philox.h"

namespace spillway {
namespace {

class Fifo final : public Policy {
 public:
  std::string_view name() const override { return "fifo"; }
  double priority(const Candidate& candidate) const override {
    return -static_cast<double>(candidate.job.value);
  }
};

class ShardedLrtf final : public Policy {
 public:
  std::string_view name() const override { return "lrtf"; }
  double priority(const Candidate& candidate) const override { return candidate.remaining_s; }
};

class Srtf final : public Policy {
 public:
  std::string_view name() const override { return "srtf"; }
  double priority(const Candidate& candidate) const override { return -candidate.remaining_s; }
};

class RoundRobin final : public Policy {
 public:
  std::string_view name() const override { return "round_robin"; }
  double priority(const Candidate& candidate) const override {
    return -static_cast<double>(candidate.last_served);
  }
};

class Random final : public Policy {
 public:
  std::string_view name() const override { return "random"; }
  double priority(const Candidate& candidate) const override {
    const PhiloxBlock what{candidate.job.value, static_cast<std::uint32_t>(candidate.lane),
                           static_cast<std::uint32_t>(candidate.unit),
                           static_cast<std::uint32_t>(candidate.step)};
    return philox(what, /*key=*/0)[0];
  }
};

}  // namespace

std::shared_ptr<const Policy> make_policy(std::string_view name) {
  if (name == "lrtf") return std::make_shared<ShardedLrtf>();
  if (name == "srtf") return std::make_shared<Srtf>();
  if (name == "fifo") return std::make_shared<Fifo>();
  if (name == "round_robin") return std::make_shared<RoundRobin>();
  if (name == "random") return std::make_shared<Random>();
  return nullptr;
}

}  // namespace spillway
