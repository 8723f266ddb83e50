// What every reader of a byte stream of frames must keep, whatever the bytes and however they are cut:
//
//     any bytes give frames or one fault that names a field, nothing else, and never a write outside the landing memory.
//
// `Judge` is the receiving side that watches a reader.  It knows the whole stream, so it says at every call what must come
// next; it shares nothing with the reader but the rule for one header.  A breach ends the process: a fuzzer saves the input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include "backend.hpp"
#include "harness.hpp"
#include "wire.hpp"

namespace fuzz {

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
