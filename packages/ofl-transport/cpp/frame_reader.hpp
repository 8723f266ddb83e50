// From the bytes of a stream to the frames of an Inbox: finds the headers, judges them, lands the bodies.  Used by every
// wire whose peer sends a plain stream.  Owns the framing and nothing of its meaning; never reads a descriptor.
//
// A source has two ways to hand over bytes: `take` copies them from wherever they lie, and a source that can choose where
// its next bytes go asks `body_room` and says `landed`, which saves the copy of a large body.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend.hpp"
#include "wire.hpp"

namespace ofl {

class FrameReader {
 public:
  // The next bytes of the stream.  False: the peer broke a rule, `fault` is the clause, and nothing more is taken.
  bool take(Inbox& inbox, std::span<const std::byte> bytes) noexcept;

  // Where the rest of the body in progress belongs; empty between bodies, and for a body that is dropped.
  std::span<std::byte> body_room() const noexcept;
  // Of the body in progress, dropped or not; 0 between bodies.
  std::size_t body_left() const noexcept { return in_body_ ? header_.body_bytes - landed_ : 0; }
  // So many bytes, at least one, were put at the front of `body_room`.
  void landed(Inbox& inbox, std::size_t bytes) noexcept;

  // A body on its way to this memory is dropped from here on.
  void retract(const std::byte* memory) noexcept;

  // True in the middle of a frame.
  bool mid_frame() const noexcept { return in_body_ || header_bytes_ > 0; }
  std::uint64_t bytes_received() const noexcept { return received_; }
  const char* fault() const noexcept { return fault_; }

 private:
  std::span<const std::byte> take_header(std::span<const std::byte> bytes) noexcept;
  bool begin_body(Inbox& inbox) noexcept;
  void advance(Inbox& inbox, std::size_t bytes) noexcept;

  wire::FrameHeader header_{};
  std::size_t header_bytes_ = 0;  // of the next header that are here; 0 once it is whole
  bool in_body_ = false;
  std::byte* landing_ = nullptr;  // where the body goes; nullptr: dropped
  std::size_t landed_ = 0;
  std::uint64_t received_ = 0;
  const char* fault_ = nullptr;
};

}  // namespace ofl
