// What every reader of a byte stream of frames must keep, whatever the bytes and however they are cut:
//
//     any bytes give frames or one fault that names a field, nothing else, and never a write outside the landing memory.
//
// `Judge` is the receiving side that watches a reader.  It knows the whole stream, so it says at every call what must come
// next; it shares nothing with the reader but the rule for one header.  A breach ends the process: a fuzzer saves the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "backend.hpp"
#include "wire.hpp"

namespace fuzz {

using Bytes = std::span<const std::uint8_t>;

#define HOLDS(condition, sentence)                                                                    \
  do {                                                                                                \
    if (!(condition)) ::fuzz::breach(__FILE__, __LINE__, #condition, sentence);                       \
  } while (false)

[[noreturn]] inline void breach(const char* file, int line, const char* condition, const char* sentence) {
  std::fprintf(stderr, "\n%s:%d: broken: %s (%s)\n", file, line, sentence, condition);
  std::abort();
}

// Numbers that follow from the input alone, so that an input replays.
class Choices {
 public:
  explicit Choices(std::uint64_t seed) noexcept : state_(seed) {}
  // 0 .. below - 1
  std::size_t below(std::size_t limit) noexcept {
    state_ += 0x9E3779B97F4A7C15;
    std::uint64_t mixed = state_;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
    return static_cast<std::size_t>((mixed ^ (mixed >> 31)) % limit);
  }
  bool one_in(std::size_t times) noexcept { return below(times) == 0; }
  // Few bytes, some, or many: what a network does.
  std::size_t piece() noexcept {
    switch (below(4)) {
      case 0: return 1 + below(3);
      case 1: return 1 + below(64);
      case 2: return 1 + below(2048);
      default: return 1 + below(32768);
    }
  }

 private:
  std::uint64_t state_;
};

// Memory of exactly the size that was asked for: the sanitizer watches its ends, and so do the guards where there is none.
class LandingMemory {
 public:
  explicit LandingMemory(std::size_t bytes) : bytes_(bytes), block_(new std::byte[bytes + 2 * kGuard]) {
    std::memset(block_.get(), kPattern, bytes + 2 * kGuard);
    poison(block_.get(), kGuard);
    poison(data() + bytes, kGuard);
  }
  ~LandingMemory() {
    unpoison(block_.get(), kGuard);
    unpoison(data() + bytes_, kGuard);
    for (std::size_t i = 0; i < kGuard; ++i)
      HOLDS(block_[i] == std::byte{kPattern} && block_[kGuard + bytes_ + i] == std::byte{kPattern},
            "a write outside the landing memory");
  }
  LandingMemory(const LandingMemory&) = delete;
  LandingMemory& operator=(const LandingMemory&) = delete;

  std::byte* data() const noexcept { return block_.get() + kGuard; }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  static constexpr std::size_t kGuard = 32;
  static constexpr unsigned char kPattern = 0xA5;
  static void poison(const std::byte* from, std::size_t bytes) noexcept;
  static void unpoison(const std::byte* from, std::size_t bytes) noexcept;

  std::size_t bytes_;
  std::unique_ptr<std::byte[]> block_;
};

// An input is 8 bytes from which all choices follow (where the stream is cut, where bodies land), and then the stream.
inline constexpr std::size_t kChoiceBytes = 8;

inline bool split(const std::uint8_t* data, std::size_t size, std::uint64_t& seed, Bytes& stream) noexcept {
  if (size < kChoiceBytes) return false;
  std::memcpy(&seed, data, kChoiceBytes);
  stream = {data + kChoiceBytes, size - kChoiceBytes};
  return true;
}

// True for a clause that has a field of the wire format among its words.
bool names_a_field(const char* clause) noexcept;

class Judge final : public ofl::Inbox {
 public:
  static constexpr std::uint32_t kBodyBytesMax = 1U << 16;
  static constexpr char kOversized[] = "body_bytes is over the limit of this connection";

  Judge(Bytes stream, Choices& choices) noexcept : stream_(stream), choices_(choices) {}

  ofl::Landing landing(const ofl::wire::FrameHeader& header) noexcept override;
  void completed(const ofl::wire::FrameHeader& header) noexcept override;

  // Where the body in progress lands; nullptr: nowhere.
  const std::byte* landing_memory() const noexcept { return memory_ ? memory_->data() : nullptr; }
  // The memory is its owner's again; the reader was told by `retract`.
  void take_back() noexcept { memory_.reset(); }
  // What the reader must say once it took `given` bytes of the stream.
  void settle(std::size_t given, const char* fault, bool mid_frame) const noexcept;
  // From now on no frame may come.
  void silence() noexcept { silent_ = true; }
  // Of the stream, by frames that are complete.
  std::size_t consumed() const noexcept { return at_; }

 private:
  const std::uint8_t* body() const noexcept { return stream_.data() + at_ + sizeof(ofl::wire::FrameHeader); }
  void judge_body(const ofl::wire::FrameHeader& header) const noexcept;

  Bytes stream_;
  Choices& choices_;
  std::size_t at_ = 0;  // of the header that comes next, or of the one whose body is on its way
  bool in_body_ = false;
  bool silent_ = false;  // after a fault, or the end of the stream
  const char* expected_fault_ = nullptr;
  std::unique_ptr<LandingMemory> memory_;
};

// Some of the time the memory is taken back while a body is on its way there, as by a cancel.
template <typename Reader>
void take_back_sometimes(Reader& reader, Judge& judge, Choices& choices) {
  if (judge.landing_memory() == nullptr || !choices.one_in(8)) return;
  reader.retract(judge.landing_memory());
  judge.take_back();
}

// Feeds the stream to a reader in pieces.  A Reader has `give(Bytes)`, which returns how many bytes it took, `end()`,
// after which the stream has ended, and of a Channel: receive, retract, fault, mid_frame, bytes_received.
template <typename Reader>
void read_stream(Reader& reader, Bytes stream, Choices& choices) {
  Judge judge(stream, choices);
  std::size_t given = 0;
  while (given < stream.size() && reader.fault() == nullptr) {
    const std::size_t piece = choices.piece();
    given += reader.give(stream.subspan(given, piece < stream.size() - given ? piece : stream.size() - given));
    ofl::Progress progress = ofl::Progress::done;
    while (progress == ofl::Progress::done) {
      progress = reader.receive(judge, choices.piece());
      take_back_sometimes(reader, judge, choices);
    }
    HOLDS(progress != ofl::Progress::closed, "the stream has not ended");
    HOLDS((progress == ofl::Progress::failed) == (reader.fault() != nullptr), "a failure has a fault, and nothing else has");
    HOLDS(reader.bytes_received() <= given, "no byte is counted twice");
    judge.settle(given, reader.fault(), reader.mid_frame());
  }
  const char* const fault = reader.fault();
  judge.silence();
  if (fault == nullptr) {
    reader.end();
    HOLDS(reader.receive(judge, 1U << 20) == ofl::Progress::closed, "the end of the stream is no fault");
    return;
  }
  HOLDS(reader.receive(judge, 1U << 20) == ofl::Progress::failed, "after a fault nothing else is read");
  HOLDS(reader.fault() == fault, "there is one fault");
}

}  // namespace fuzz
