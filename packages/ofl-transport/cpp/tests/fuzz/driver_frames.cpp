// The frames of the wire, for the fuzz driver's mutations.

#include <cstring>
#include <iterator>

#include "driver.hpp"
#include "wire.hpp"

namespace fuzz {

namespace {

constexpr std::uint64_t kNumbers[] = {
    0, 1, 2, 7, 8, 23, 24, 25, 95, 96, 97, 127, 128, 240, 241, 248, 249, 255, 256, 257, 1023, 1024, 16383, 16384, 16385,
    32767, 32768, 65535, 65536, 65537, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 1ULL << 62, ~0ULL};

std::size_t below(std::size_t limit, Random& random) { return static_cast<std::size_t>(random() % limit); }

// A sound frame of any type and size.
Input any_frame(Random& random) {
  const auto type = static_cast<ofl::wire::FrameType>(1 + below(12, random));
  const std::size_t bytes = below(2, random) == 0 ? below(300, random) : below(30'000, random);
  const ofl::wire::FrameHeader header = ofl::wire::make_header(type, below(2, random) * (1 + below(600, random)), bytes);
  Input frame(sizeof header + bytes, static_cast<std::uint8_t>(random()));
  std::memcpy(frame.data(), &header, sizeof header);
  return frame;
}

constexpr Format kFrames{ofl::wire::kMagic, sizeof(ofl::wire::FrameHeader), kNumbers, any_frame};

}  // namespace

const Format& format() { return kFrames; }

}  // namespace fuzz
