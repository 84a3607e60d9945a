#include "scheduler/engine/policy.h"

#include "spillway/philox.h"

namespace spillway {
namespace {

class Fifo final : public Policy {
 public:
  std::string_view name() const override { return to_string(PolicyKind::fifo); }
  double priority(const Candidate& candidate) const override {
    return -static_cast<double>(candidate.job.value);
  }
};

class ShardedLrtf final : public Policy {
 public:
  std::string_view name() const override { return to_string(PolicyKind::lrtf); }
  double priority(const Candidate& candidate) const override { return candidate.remaining_s; }
};

class Srtf final : public Policy {
 public:
  std::string_view name() const override { return to_string(PolicyKind::srtf); }
  double priority(const Candidate& candidate) const override { return -candidate.remaining_s; }
};

class RoundRobin final : public Policy {
 public:
  std::string_view name() const override { return to_string(PolicyKind::round_robin); }
  double priority(const Candidate& candidate) const override {
    return -static_cast<double>(candidate.last_served);
  }
};

class Random final : public Policy {
 public:
  std::string_view name() const override { return to_string(PolicyKind::random); }
  double priority(const Candidate& candidate) const override {
    const PhiloxBlock what{candidate.job.value, static_cast<std::uint32_t>(candidate.track),
                           static_cast<std::uint32_t>(candidate.unit),
                           static_cast<std::uint32_t>(candidate.step)};
    return philox(what, /*key=*/0)[0];
  }
};

}  // namespace

std::shared_ptr<const Policy> make_policy(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::lrtf:
      return std::make_shared<ShardedLrtf>();
    case PolicyKind::srtf:
      return std::make_shared<Srtf>();
    case PolicyKind::fifo:
      return std::make_shared<Fifo>();
    case PolicyKind::round_robin:
      return std::make_shared<RoundRobin>();
    case PolicyKind::random:
      return std::make_shared<Random>();
  }
  return nullptr;
}

std::shared_ptr<const Policy> make_policy(std::string_view name) {
  const auto kind = value_named<PolicyKind>(name);
  return kind ? make_policy(*kind) : nullptr;
}

}  // namespace spillway
