#include <ATen/ops/from_blob.h>
#include <fmt/format.h>
#include <tbb/global_control.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <vector>

#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "core/base/fold.h"

#include "core/peers/connect.h"
#include "core/peers/framed_peers.h"
#include "core/sealing/sealed_pipe.h"
#include "scheduler/plan/layout.h"
#include "scheduler/plan/lower.h"
#include "spillway/error.h"
#include "spillway/ids.h"
#include "spillway/philox.h"
#include "tests/support/models/small_model.h"
#include "trainer/c10d/gloo_pipes.h"
#include "trainer/c10d/no_sigpipe.h"
#include "trainer/compute/sum_term.h"
#include "trainer/runtime/exchange.h"

/// One of several hosts that sum a layer's gradients: as Spillway does, and by Gloo's all-reduce,
/// in turns. Prints, for each round, the seconds of Spillway, of Spillway with a token, of Gloo;
/// then how many elements differ from the sum of one process, likewise. hosts_exchange PORT NUMBER
/// SIZE MEBIBYTES ROUNDS
namespace spillway {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kGroups = 8;
constexpr std::chrono::seconds kLimit(60);

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class Listener final : public PeersListener {
 public:
  void heard(int, std::span<const std::byte>) override {}
  void lost(int, const std::string&) override {}
};

/// The sum of a reduction group: any values with many digits.
std::vector<float> sum_of_group(int group, std::size_t elements) {
  std::vector<float> values(elements);
  for (std::size_t i = 0; i < elements; ++i) {
    const auto words =
        philox({static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(group), 0, 0}, 1);
    values[i] = static_cast<float>(words[0]) * 0x1p-32F - 0.5F;
  }
  return values;
}

struct Values {
  std::vector<float> data;
  Values operator+(const Values& other) const {
    Values sum = *this;
    for (std::size_t i = 0; i < data.size(); ++i) sum.data[i] += other.data[i];
    return sum;
  }
};

/// The finished subtrees of groups [begin, end), by first group.
std::map<int, std::vector<float>> subtrees_of(GroupRange groups, std::size_t elements) {
  TreeSum<Values> tree(kGroups);
  for (int g = groups.begin; g < groups.end; ++g) {
    tree.add({g, g + 1}, {sum_of_group(g, elements)});
  }
  std::map<int, std::vector<float>> found;
  for (const auto& [range, values] : tree.parts()) found[range.begin] = values.data;
  return found;
}

class Host {
 public:
  Host(const Endpoint& endpoint, int number, int size, std::size_t elements)
      : elements_(elements),
        rendezvous_(number == 0 ? Rendezvous::open(endpoint) : Rendezvous::join(endpoint, kLimit)),
        model_(testing::chain(1, static_cast<std::int64_t>(elements))),
        shape_{.virtual_nodes = kGroups,
               .groups = kGroups,
               .lane_groups = {split_groups(kGroups, size)[at(number)]},
               .host_groups = split_groups(kGroups, size),
               .host = number},
        plan_(std::make_shared<JobPlan>(
            lower(model_, testing::profile_of(model_), shape_, {{0, 1}}, true))),
        memory_(plan_->layout.home_bytes),
        home_(memory_.data()),
        own_(subtrees_of(shape_.own_groups(), elements)),
        peers_(number, pipes(rendezvous_, "exchange", number, size), listener_),
        sealed_peers_(number, pipes(rendezvous_, "sealed", number, size, /*is_sealed=*/true),
                      listener_) {
    const auto options = c10d::ProcessGroupGloo::Options::create(kLimit);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
    options->threads = 1;
    gloo_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("gloo", rendezvous_.store()->clone()), number, size,
        options);
    for (const auto& [first, values] : own_) {  // what this host adds by itself
      if (local_.empty()) local_.resize(elements);
      for (std::size_t i = 0; i < elements; ++i) local_[i] += values[i];
    }
  }

  void meet() { gloo_->barrier()->wait(); }

  /// The exchanges of a layer's sums, with the additions between them.
  double sum(bool is_sealed) {
    write_own();
    meet();
    const auto begin = Clock::now();
    const auto& ops = program().host_ops;
    for (int op = 0; op < static_cast<int>(ops.size()); ++op) {
      if (ops[at(op)].kind == HostOpKind::exchange && ops[at(op)].index == 0) {
        exchange_all(op, is_sealed ? sealed_peers_ : peers_);
      }
      if (ops[at(op)].kind == HostOpKind::add) add(ops[at(op)]);
    }
    return seconds_since(begin);
  }

  double all_reduce() {
    reduced_ = local_;
    std::vector<at::Tensor> tensors{
        at::from_blob(reduced_.data(), {static_cast<std::int64_t>(elements_)}, at::kFloat)};
    meet();
    const auto begin = Clock::now();
    gloo_->allreduce(tensors)->wait();
    return seconds_since(begin);
  }

  std::size_t num_different(const float* sum) const {
    const auto whole = subtrees_of({0, kGroups}, elements_).at(0);
    std::size_t different = 0;
    for (std::size_t i = 0; i < elements_; ++i) different += sum[i] != whole[i];
    return different;
  }
  const float* summed() const { return floats_at(plan_->layout.partial(0, 0)); }
  const float* reduced() const { return reduced_.data(); }

 private:
  static std::vector<std::unique_ptr<Pipe>> pipes(const Rendezvous& rendezvous, const char* group,
                                                  int number, int size, bool is_sealed = false) {
    const GlooConnector connector(rendezvous, {group, number});
    auto [pipes, failures] = connect_all(number, size, [&](int peer) {
      auto pipe = connector.connect(peer, kLimit);
      if (!is_sealed) return pipe;
      return seal_pipe(std::move(pipe), {number, peer, group}, Token("the same on all hosts"),
                       kLimit);
    });
    if (!failures.empty()) throw Error(failures.begin()->second);
    return std::move(pipes);
  }
  const Program& program() const { return *plan_->programs[StepKind{.train = true}.index()]; }
  float* floats_at(Bytes home) const { return reinterpret_cast<float*>(home_.at(home)); }

  void write_own() {
    for (const Transfer& transfer : first_exchange().transfers) {
      if (!transfer.is_sent) std::memset(home_.at(transfer.home), 0, transfer.bytes);
    }
    const auto& slots = plan_->layout.sum_buffers[0];
    const FoldPlan fold = plan_fold(shape_.own_groups(), kGroups, 1);
    for (const auto& [first, slot] : fold.roots) {
      const int buffer = slots[at(slot)][0];
      std::ranges::copy(own_.at(first), floats_at(plan_->layout.buffers[at(buffer)].home));
    }
  }

  const HostOpSpec& first_exchange() const {
    return *std::ranges::find_if(program().host_ops, [](const HostOpSpec& op) {
      return op.kind == HostOpKind::exchange && op.index == 0;
    });
  }

  void exchange_all(int op, Peers& peers) {
    std::promise<bool> ended;
    exchange(peers, /*number=*/0,
             {.job = JobId(0), .plan = plan_, .program = &program(), .op = op, .home = &home_},
             [&](bool is_lost) { ended.set_value(is_lost); });
    if (!ended.get_future().get()) return;
    fmt::print(stderr, "the other host is lost\n");
    std::exit(1);
  }

  void add(const HostOpSpec& op) {
    for (const FoldStep::Merge& merge : op.merges) {
      for (const HomeRange& part : op.parts) {
        add_packed(home_.at(plan_->layout.partial(0, at(merge.into)) + part.home),
                   home_.at(plan_->layout.partial(0, at(merge.from)) + part.home), DType::f32,
                   part.bytes);
      }
    }
  }

  const std::size_t elements_;
  const NoSigpipe no_sigpipe_;
  Rendezvous rendezvous_;
  const ModelSpec model_;
  const JobShape shape_;
  const std::shared_ptr<const JobPlan> plan_;
  std::vector<std::byte> memory_;
  const Home home_;
  const std::map<int, std::vector<float>> own_;
  std::vector<float> local_, reduced_;
  Listener listener_;
  FramedPeers peers_, sealed_peers_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
};

void run(char** arguments) {
  const Endpoint endpoint{.host = "127.0.0.1", .port = std::atoi(arguments[1])};
  const int number = std::atoi(arguments[2]), size = std::atoi(arguments[3]);
  const std::size_t elements = std::strtoul(arguments[4], nullptr, 10) << 18;
  Host host(endpoint, number, size, elements);
  std::size_t different = 0;
  for (int round = 0; round < std::atoi(arguments[5]); ++round) {
    const double plain = host.sum(/*is_sealed=*/false);
    different = host.num_different(host.summed());
    const double sealed = host.sum(/*is_sealed=*/true), theirs = host.all_reduce();
    fmt::print("{} {} {}\n", plain, sealed, theirs);
  }
  fmt::print("{} {} {}\n", different, host.num_different(host.summed()),
             host.num_different(host.reduced()));
  host.meet();
}

}  // namespace
}  // namespace spillway

int main(int argc, char** argv) {
  if (argc != 6) return 2;
  const tbb::global_control one_thread(tbb::global_control::max_allowed_parallelism, 1);
  spillway::run(argv);
  return 0;
}
