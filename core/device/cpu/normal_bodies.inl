// The part of kernel_bodies.inl that draws normal random numbers. It uses only + - * / and sqrt,
// which IEEE 754 rounds correctly. log, sin and cos of a C library differ between versions and
// between processors with and without fma.

/// Exact below 2^52.
SPILLWAY_TARGET inline Doubles double_of(Counters x) {
  return (Doubles)(x | std::uint64_t{0x4330000000000000u}) - 0x1p52;
}

SPILLWAY_TARGET inline Counters low_half(Counters x) { return x & std::uint64_t{0xFFFFFFFFu}; }

SPILLWAY_TARGET inline Doubles square_root(Doubles x) {
  double lanes[kLanes];
  std::memcpy(lanes, &x, sizeof(x));
  for (double& lane : lanes) lane = std::sqrt(lane);
  std::memcpy(&x, lanes, sizeof(x));
  return x;
}

/// log(u), 0 < u <= 1: exponent * log(2) + 2 artanh((m - 1) / (m + 1)), m in [sqrt(1/2), sqrt(2)].
SPILLWAY_TARGET inline Doubles log_of(Doubles u) {
  constexpr int kTerms = 11;
  const auto bits = (Counters)u;
  Doubles exponent = double_of(bits >> 52) - 1023.0;
  auto m = (Doubles)((bits & std::uint64_t{0xFFFFFFFFFFFFFu}) | std::uint64_t{0x3FF0000000000000u});
  const auto is_large = m > std::numbers::sqrt2;
  exponent = is_large ? exponent + 1.0 : exponent;
  m = is_large ? m * 0.5 : m;
  const Doubles s = (m - 1.0) / (m + 1.0), s2 = s * s;
  Doubles series = Doubles{} + 1.0 / (2 * kTerms + 1);
  for (int k = kTerms - 1; k >= 0; --k) series = series * s2 + 1.0 / (2 * k + 1);
  return exponent * std::numbers::ln2 + 2.0 * s * series;
}

/// Each lane is a vector of the plane.
struct Plane {
  Doubles x, y;
};

/// Cosine and sine of word / 2^32 turns, by Taylor series within an eighth of a turn.
SPILLWAY_TARGET inline Plane direction_of(Counters word) {
  const Counters quarter = (word + std::uint64_t{0x20000000u}) >> 30;  // the nearest, of 0..4
  const Doubles rest = double_of(word) - double_of(quarter << 30);
  const Doubles angle = rest * (2 * std::numbers::pi * 0x1p-32), angle2 = angle * angle;
  Doubles c = Doubles{} + 1.0, s = c;
  for (int k = 8; k >= 1; --k) {
    c = 1.0 - c * angle2 * (1.0 / (2 * k * (2 * k - 1)));
    s = 1.0 - s * angle2 * (1.0 / (2 * k * (2 * k + 1)));
  }
  s *= angle;
  const auto is_odd = (quarter & std::uint64_t{1}) == std::uint64_t{1};
  const Counters x = (Counters)(is_odd ? s : c), y = (Counters)(is_odd ? c : s);
  // Quarters 1 and 2 lie on the left, 2 and 3 below: there the sign bit flips.
  return {(Doubles)(x ^ ((quarter + std::uint64_t{1}) >> 1 << 63)),
          (Doubles)(y ^ (quarter >> 1 << 63))};
}

/// Two independent standard normals. Source: Box and Muller, 1958.
SPILLWAY_TARGET inline Plane normal_pair(Counters radius_word, Counters angle_word) {
  const Doubles u = (double_of(low_half(radius_word)) + 1.0) * 0x1p-32;
  const Doubles radius = square_root(-2.0 * log_of(u));
  const Plane direction = direction_of(low_half(angle_word));
  return {radius * direction.x, radius * direction.y};
}

/// The elements of blocks `first`, `first` + 1, ..., one block a lane.
SPILLWAY_TARGET inline void draw_normals(float (&out)[4 * kLanes], std::uint64_t first,
                                         double stddev, const RandomKey& key) {
  Counters offset;
  for (std::size_t j = 0; j < kLanes; ++j) offset[j] = j;
  const Counters zero = {};
  PhiloxLanes c{offset + first, zero + std::uint64_t{key.vn}, zero + std::uint64_t{key.stream},
                zero + std::uint64_t{key.step}};
  philox_lanes(c, key.seed);
  const Plane a = normal_pair(c.c0, c.c1), b = normal_pair(c.c2, c.c3);
  const HalfFloats values[4] = {__builtin_convertvector(stddev * a.x, HalfFloats),
                                __builtin_convertvector(stddev * a.y, HalfFloats),
                                __builtin_convertvector(stddev * b.x, HalfFloats),
                                __builtin_convertvector(stddev * b.y, HalfFloats)};
  for (std::size_t j = 0; j < kLanes; ++j) {
    for (std::size_t word = 0; word < 4; ++word) out[4 * j + word] = values[word][j];
  }
}

SPILLWAY_TARGET void fill_normal(float* x, std::size_t n, double stddev, const RandomKey& key,
                                 std::size_t first) {
  constexpr std::size_t kDrawn = 4 * kLanes;
  float drawn[kDrawn];
  for (std::size_t i = 0; i < n;) {
    draw_normals(drawn, (first + i) / 4, stddev, key);
    const std::size_t unused = (first + i) % 4, left = kDrawn - unused;
    const std::size_t taken = n - i < left ? n - i : left;
    std::memcpy(x + i, drawn + unused, taken * sizeof(float));
    i += taken;
  }
}
