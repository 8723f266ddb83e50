// Frames in segments, both directions, without verbs: a segment holds bytes of exactly one frame, the first one of a frame
// begins with its header, and no header straddles.  What arrives is peer input: judged, never asserted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "backend.hpp"
#include "rdma_limits.hpp"
#include "wire.hpp"

namespace ofl {

// Puts segments together again.  One per connection, on its receiving side.
class SegmentReader {
 public:
  // Takes one segment that is not empty.  nullptr, or the clause of what the peer broke; the stream is lost after that.
  const char* take(std::span<const std::byte> segment, Inbox& inbox) noexcept;
  // The rest of a body on its way to the memory is dropped.
  void retract(const std::byte* memory) noexcept;
  bool mid_frame() const noexcept { return left_ > 0; }

 private:
  const char* begin(std::span<const std::byte>& segment, Inbox& inbox) noexcept;

  wire::FrameHeader header_{};
  std::byte* landing_ = nullptr;  // where the body goes; nullptr: dropped
  std::size_t landed_ = 0;
  std::size_t left_ = 0;  // of the body
};

// Bytes of one send: in its slot, where they were copied to, or where the caller has them.
struct Piece {
  const std::byte* base;
  std::uint32_t bytes;
  bool lent;
};

// Collects the next bytes of a frame for one send.
class Gather {
 public:
  // lent: parts that lie in it and are worth it stay where they are; nullptr: everything is copied.  pieces_max: of the
  // device, from 1 to kGatherMax.
  Gather(std::span<std::byte> slot, const Memory* lent, std::size_t pieces_max) noexcept
      : slot_(slot), lent_(lent), pieces_max_(pieces_max) {}

  // Takes at most `bytes` bytes from the frame, from `from` bytes after the first of its header.  Stops short only where
  // pieces or the slot end.  Returns how many it took.
  std::size_t take(const Outgoing& frame, std::size_t from, std::size_t bytes) noexcept;
  // The same for a whole frame that the device copies itself while it takes the send: nothing is copied here.  The parts
  // and the header are at most as many as the device's pieces.
  void take_in_place(const Outgoing& frame) noexcept;

  std::span<const Piece> pieces() const noexcept { return {pieces_.data(), count_}; }
  bool lends() const noexcept { return lends_; }

 private:
  std::size_t add(const std::byte* base, std::size_t bytes, bool lent) noexcept;

  const std::span<std::byte> slot_;
  const Memory* const lent_;
  const std::size_t pieces_max_;
  std::array<Piece, kGatherMax> pieces_{};
  std::size_t count_ = 0;
  std::size_t copied_ = 0;
  bool lends_ = false;
};

// True if the whole body can be gathered from lent memory but for what fits into one slot.
bool can_gather_body(const Outgoing& frame, const Memory& lent, std::size_t pieces_max) noexcept;

}  // namespace ofl
