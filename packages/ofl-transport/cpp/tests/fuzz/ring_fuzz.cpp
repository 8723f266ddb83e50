// Fuzz target: the ring of shared memory.  Half of the inputs go through it in order, by a writer that keeps the rules, and
// must come out as the frames that they are.  In the other half the peer writes where and what it likes, at any time:
//
//     whatever stands in the ring, the reader's bytes lie in it, a fault is for ever, and the writer writes inside.

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "frame_reader.hpp"
#include "shm_ring.hpp"
#include "stream.hpp"

namespace {

constexpr std::size_t kRingBytes = 16384;

// Heap memory of exactly the ring's size, so that the sanitizer sees every step outside.
class Ring {
 public:
  Ring() : memory_(static_cast<std::byte*>(std::aligned_alloc(ofl::kLineBytes, kRingBytes))) {
    std::memset(memory_, 0, kRingBytes);
  }
  ~Ring() { std::free(memory_); }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  std::span<std::byte> bytes() const noexcept { return {memory_, kRingBytes}; }
  std::uint64_t& taken() noexcept { return taken_; }
  bool holds(std::span<const std::byte> part) const noexcept {
    return part.data() >= memory_ && part.data() + part.size() <= memory_ + kRingBytes;
  }

 private:
  std::byte* const memory_;
  std::uint64_t taken_ = 0;
};

// Writer and reader that both keep the rules.
class Through {
 public:
  std::size_t give(fuzz::Bytes piece) {
    const std::span<std::byte> room = writer_.room(piece.size());
    HOLDS(writer_.fault() == nullptr && room.size() <= piece.size(), "the writer asks for no more than it was given");
    if (room.empty()) return 0;
    HOLDS(ring_.holds(room), "a record lies in the ring");
    std::memcpy(room.data(), piece.data(), room.size());
    writer_.publish(room.size());
    return room.size();
  }
  void end() noexcept { ended_ = true; }
  void retract(const std::byte* memory) noexcept { frames_.retract(memory); }
  const char* fault() const noexcept { return frames_.fault(); }
  bool mid_frame() const noexcept { return frames_.mid_frame(); }
  std::uint64_t bytes_received() const noexcept { return frames_.bytes_received(); }

  ofl::Progress receive(ofl::Inbox& inbox, std::size_t) {
    if (fault() != nullptr) return ofl::Progress::failed;
    const std::span<const std::byte> record = reader_.front();
    HOLDS(reader_.fault() == nullptr, "a ring that was written by the rules has no fault");
    if (record.empty()) return ended_ ? ofl::Progress::closed : ofl::Progress::blocked;
    if (!frames_.take(inbox, record)) return ofl::Progress::failed;
    reader_.release();
    return ofl::Progress::done;
  }

 private:
  Ring ring_;
  ofl::RingWriter writer_{ring_.bytes(), ring_.taken()};
  ofl::RingReader reader_{ring_.bytes(), ring_.taken()};
  ofl::FrameReader frames_;
  bool ended_ = false;
};

// A word that is nearly right more often than a random one would be.
std::uint64_t word(std::uint64_t near, fuzz::Choices& choices) {
  switch (choices.below(4)) {
    case 0: return near + choices.below(256) - 128;
    case 1: return (near / ofl::kLineBytes + choices.below(8) - 4) << 32 | choices.below(2 * kRingBytes);
    case 2: return ofl::make_mark(near, choices.below(kRingBytes + 128));
    default: return choices.below(SIZE_MAX);
  }
}

// The peer writes somewhere in the ring: 8 bytes at a line's beginning, where a mark would be, or bytes of the input anywhere.
void poke(Ring& ring, std::uint64_t position, fuzz::Bytes& stream, fuzz::Choices& choices) {
  if (choices.one_in(2)) {
    const std::uint64_t mark = word(position, choices);
    const std::size_t line = choices.one_in(3) ? choices.below(kRingBytes / ofl::kLineBytes) * ofl::kLineBytes
                                               : position % kRingBytes / ofl::kLineBytes * ofl::kLineBytes;
    std::memcpy(ring.bytes().data() + line, &mark, sizeof mark);
    return;
  }
  const std::size_t bytes = std::min(choices.piece(), std::min(stream.size(), kRingBytes));
  if (bytes == 0) return;
  std::memcpy(ring.bytes().data() + choices.below(kRingBytes - bytes + 1), stream.data(), bytes);
  stream = stream.subspan(bytes);
}

void read_hostile(Ring& ring, fuzz::Bytes stream, fuzz::Choices& choices) {
  std::uint64_t ours = 0;
  ofl::RingReader reader(ring.bytes(), ours);
  for (int turn = 0; turn < 200 && reader.fault() == nullptr; ++turn) {
    poke(ring, reader.position(), stream, choices);
    const std::span<const std::byte> record = reader.front();
    if (record.empty()) continue;
    HOLDS(ring.holds(record), "a record lies in the ring");
    unsigned sum = 0;
    for (const std::byte byte : record) sum += static_cast<unsigned>(byte);
    HOLDS(sum <= 255 * record.size(), "every byte of a record can be read");
    const std::uint64_t before = reader.position();
    reader.release();
    HOLDS(reader.position() > before && reader.position() % ofl::kLineBytes == 0, "a reader goes on, by whole lines");
    HOLDS(ours == reader.position(), "what was read is told");
  }
  if (reader.fault() == nullptr) return;
  HOLDS(fuzz::names_a_field(reader.fault()), "a fault names a field");
}

void write_hostile(Ring& ring, fuzz::Bytes stream, fuzz::Choices& choices) {
  ofl::RingWriter writer(ring.bytes(), ring.taken());
  for (int turn = 0; turn < 200 && writer.fault() == nullptr; ++turn) {
    // Mostly the truth, as from a reader that has caught up.
    ring.taken() = choices.one_in(8) ? word(writer.position(), choices) : writer.position();
    const std::span<std::byte> room = writer.room(choices.piece());
    if (room.empty()) continue;
    HOLDS(ring.holds(room), "a record lies in the ring");
    const std::size_t bytes = 1 + choices.below(room.size());
    for (std::size_t i = 0; i < bytes; ++i) room[i] = static_cast<std::byte>(stream.empty() ? 0 : stream[i % stream.size()]);
    writer.publish(bytes);
  }
  if (writer.fault() == nullptr) return;
  HOLDS(fuzz::names_a_field(writer.fault()), "a fault names a field");
  ring.taken() = writer.position();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  if (choices.one_in(2)) {
    Through through;
    fuzz::read_stream(through, stream, choices);
    return 0;
  }
  Ring ring;
  choices.one_in(2) ? read_hostile(ring, stream, choices) : write_hostile(ring, stream, choices);
  return 0;
}
