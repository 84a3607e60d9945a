#include "scheduler/plan/program_index.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "spillway/ids.h"

namespace spillway {
namespace {

void index_users(Program& program, const std::vector<BufferSpec>& buffers) {
  program.unit_users.resize(buffers.size());
  program.reads.resize(buffers.size());
  std::vector<int> makers(buffers.size(), -1);
  for (int u = 0; u < static_cast<int>(program.units.size()); ++u) {
    UnitSpec& unit = program.units[at(u)];
    std::set<int> used(unit.weights.begin(), unit.weights.end()), before;
    for (int i = 0; i < unit.num_ops; ++i) {
      const OpSpec& op = program.ops[at(unit.first_op + i)];
      used.insert(op.inputs.begin(), op.inputs.end());
      if (op.graph >= 0) used.insert(op.graph);
      for (int b : op.outputs) makers[at(b)] = u;
      for (int b : op.inputs) {
        ++program.reads[at(b)];
        const int maker = makers[at(b)];
        if (maker >= 0 && program.units[at(maker)].track != unit.track) before.insert(maker);
      }
    }
    for (int b : unit.sums) {
      if (buffers[at(b)].kept_home != kNoHome) used.insert(b);
    }
    unit.unit_deps.assign(before.begin(), before.end());
    for (int b : used) program.unit_users[at(b)].push_back(u);
  }
}

/// Weights leave with the unit that says so, sums with the last unit that adds to them.
TrackNeed need_of(const Program& program, const std::vector<int>& units,
                  const std::vector<BufferSpec>& buffers) {
  TrackNeed need;
  Bytes used = 0, shared = 0;
  std::vector<bool> is_here(buffers.size());
  const auto set = [&](const std::vector<int>& blocks, bool here) {
    for (int b : blocks) {
      if (is_here[at(b)] == here) continue;
      is_here[at(b)] = here;
      Bytes& bytes = buffers[at(b)].shared >= 0 ? shared : used;
      if (here) {
        bytes += buffers[at(b)].bytes;
      } else {
        bytes -= buffers[at(b)].bytes;
      }
    }
  };
  for (int u : units) {
    const UnitSpec& unit = program.units[at(u)];
    set(unit.weights, true);
    set(unit.sums, true);
    need.blocks = std::max(need.blocks, used);
    need.shared = std::max(need.shared, shared);
    const Bytes area = std::accumulate(unit.op_area.begin(), unit.op_area.end(), Bytes{0});
    need.room = std::max(need.room, unit.workspace + area);
    need.cost_s += unit.cost_s;
    set(unit.leaves, false);
    if (!unit.drains.empty()) set(unit.sums, false);
  }
  return need;
}

void index_dependents(Program& program) {
  program.host_ops_after_unit.resize(program.units.size());
  program.host_ops_after_host.resize(program.host_ops.size());
  program.units_after_host.resize(program.host_ops.size());
  program.units_after_unit.resize(program.units.size());
  for (std::size_t h = 0; h < program.host_ops.size(); ++h) {
    const int number = static_cast<int>(h);
    for (int u : program.host_ops[h].unit_deps) {
      program.host_ops_after_unit[at(u)].push_back(number);
    }
    for (int before : program.host_ops[h].host_deps) {
      program.host_ops_after_host[at(before)].push_back(number);
    }
  }
  for (std::size_t u = 0; u < program.units.size(); ++u) {
    for (int before : program.units[u].host_deps) {
      program.units_after_host[at(before)].push_back(static_cast<int>(u));
    }
    for (int before : program.units[u].unit_deps) {
      program.units_after_unit[at(before)].push_back(static_cast<int>(u));
    }
  }
}

}  // namespace

void index(Program& program, const std::vector<BufferSpec>& buffers) {
  index_users(program, buffers);
  for (const std::vector<int>& units : program.track_units) {
    program.track_needs.push_back(need_of(program, units, buffers));
  }
  index_dependents(program);
}

}  // namespace spillway
