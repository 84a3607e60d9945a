#include "scheduler/elastic/rungs.h"

namespace spillway {

std::int64_t Rungs::from(std::int64_t step) const {
  std::int64_t rung = min_iter;
  if (interval > 0 && step > rung) {
    const std::int64_t intervals = (step - min_iter - 1) / interval + 1;  // rounded up
    return intervals > (kNoStep - min_iter) / interval ? kNoStep : min_iter + intervals * interval;
  }
  while (rung < step) {
    if (rung > kNoStep / eta) return kNoStep;
    rung *= eta;
  }
  return rung;
}

void RungMeans::add(double loss, const Rungs& rungs) {
  sum += loss;
  ++step;
  if (step != rungs.from(step)) return;
  const std::int64_t before = means.empty() ? 0 : means.back().first;
  means.emplace_back(step, sum / static_cast<double>(step - before));
  sum = 0;
}

}  // namespace spillway
