#include "core/cpu/activation_counter.h"
#include "core/cpu/cpu_queue.h"
#include "core/cpu/mapped_memory.h"
#include "core/cpu/memory_budget.h"
#include "core/device.h"

namespace spillway {
namespace {

class CpuDevice final : public Device {
 public:
  CpuDevice(const std::string& name, Bytes budget, Bytes link_bytes_per_s)
      : budget_(std::make_shared<MemoryBudget>(name, budget)),
        activations_(name + " activations"),
        compute_(name + " compute"),
        host_to_device_(name + " h2d", link_bytes_per_s),
        device_to_host_(name + " d2h", link_bytes_per_s) {}

  const std::string& kind() const override { return kind_; }
  Bytes budget() const override { return budget_->limit(); }

  Queue& compute() override { return compute_; }
  Queue& host_to_device() override { return host_to_device_; }
  Queue& device_to_host() override { return device_to_host_; }

  std::unique_ptr<DeviceMemory> allocate(Bytes bytes) override {
    return std::make_unique<MappedMemory>(bytes, Tier::device, budget_->owner(),
                                          BudgetShare(budget_, bytes));
  }
  std::unique_ptr<DeviceMemory> allocate_host(Bytes bytes) override {
    return std::make_unique<MappedMemory>(bytes, Tier::host, budget_->owner());
  }

  ActivationMeter& activations() override { return activations_; }

 private:
  const std::string kind_ = "cpu";
  const std::shared_ptr<MemoryBudget> budget_;
  ActivationCounter activations_;
  CpuQueue compute_, host_to_device_, device_to_host_;  // last: what drains may use the others
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const std::string& name, Bytes budget,
                                        Bytes link_bytes_per_s) {
  return std::make_unique<CpuDevice>(name, budget, link_bytes_per_s);
}

}  // namespace spillway
