#include "core/device/activation_pool.h"
#include "core/device/cpu/cpu_queue.h"
#include "core/device/device.h"
#include "core/device/fault_switch.h"
#include "core/device/mapped_memory.h"
#include "core/device/memory_budget.h"

namespace spillway {
namespace {

std::unique_ptr<DeviceMemory> for_activations(const std::string& name, Bytes bytes) {
  if (bytes == 0) return nullptr;
  return std::make_unique<MappedMemory>(bytes, Tier::device, name + " activations");
}

std::unique_ptr<Link> link_of(const CpuSwitches& switches) {
  if (switches.link_bytes_per_s == 0) return nullptr;
  return std::make_unique<Link>(static_cast<double>(switches.link_bytes_per_s));
}

class CpuDevice final : public Device {
 public:
  CpuDevice(const std::string& name, Bytes budget, const CpuSwitches& switches)
      : switches_(switches),
        budget_(std::make_shared<MemoryBudget>(name, budget)),
        activations_(
            make_activation_meter(name, for_activations(name, switches.split.activations(budget)))),
        fault_(name, switches.fault, abandoned_.get_token()),
        to_device_(link_of(switches)),
        to_host_(link_of(switches)),
        compute_(name + " compute", {.slowdown = switches.slowdown}, abandoned_.get_token()),
        host_to_device_(name + " h2d", {.link = to_device_.get()}, abandoned_.get_token()),
        device_to_host_(name + " d2h", {.link = to_host_.get()}, abandoned_.get_token()),
        from_devices_(name + " d2d", {.link = to_device_.get(), .goes_first = true},
                      abandoned_.get_token()) {}

  const std::string& name() const override { return budget_->owner(); }
  const std::string& kind() const override { return kind_; }
  Bytes budget() const override { return budget_->limit(); }
  const MemorySplit& split() const override { return switches_.split; }
  double slowdown() const override { return switches_.slowdown; }
  Bytes link_bytes_per_s() const override { return switches_.link_bytes_per_s; }

  Queue& compute() override { return compute_; }
  Queue& host_to_device() override { return host_to_device_; }
  Queue& device_to_host() override { return device_to_host_; }
  Queue& from_devices() override { return from_devices_; }

  std::unique_ptr<DeviceMemory> allocate(Bytes bytes) override {
    return std::make_unique<MappedMemory>(bytes, Tier::device, budget_->owner(),
                                          BudgetShare(budget_, bytes));
  }
  std::unique_ptr<DeviceMemory> allocate_host(Bytes bytes) override {
    return std::make_unique<MappedMemory>(bytes, Tier::host, budget_->owner());
  }

  ActivationMeter& activations() override { return *activations_; }

  void begin_op() override {
    if (fault_.begin_op()) budget_->shrink(budget_->limit() / 2);
  }
  void check() override {}  // a CPU device fails only when an op begins
  void abandon() override {
    abandoned_.request_stop();
    for (const CpuQueue* queue : {&host_to_device_, &device_to_host_, &from_devices_}) {
      queue->finish_copy();
    }
  }

 private:
  const std::string kind_ = "cpu";
  const CpuSwitches switches_;
  const std::shared_ptr<MemoryBudget> budget_;
  const std::unique_ptr<ActivationMeter> activations_;
  std::stop_source abandoned_;
  FaultSwitch fault_;                                // used by the compute queue's thread
  const std::unique_ptr<Link> to_device_, to_host_;  // null: as fast as memory
  // Last: their last work uses the others.
  CpuQueue compute_, host_to_device_, device_to_host_, from_devices_;
};

}  // namespace

std::unique_ptr<Device> make_cpu_device(const std::string& name, Bytes budget,
                                        const CpuSwitches& switches) {
  return std::make_unique<CpuDevice>(name, budget, switches);
}

}  // namespace spillway
