// One direction of shared memory: a ring of records from one writer to one reader, over memory that both map.  Knows
// bytes and positions; never sleeps, never wakes anybody, never trusts what the other process wrote.
//
// A record begins on a cache line with its *mark* (8 bytes: how many bytes follow, and the record's own place), then the
// bytes.  It never crosses the end of the ring.  The mark is written last, so whoever sees it sees the bytes: the reader
// looks at the line where the next record will begin, and so finds a small frame with one cache miss instead of two
// (index, then data).  Before a record is marked, the place of the mark after it is zeroed; that line belongs to the
// record until the reader gave it back.  So a mark is always 0 or true, however old the memory is.
//
// Positions count bytes since the beginning and never wrap (2^64); a place in the ring is a position modulo its size.
// The reader publishes how far it is in `taken`, in the region's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "shm_atomics.hpp"

namespace ofl {

inline constexpr std::size_t kLineBytes = 64;  // of a cache line
inline constexpr std::size_t kMarkBytes = 8;
inline constexpr std::size_t kFirstLineBytes = kLineBytes - kMarkBytes;  // of a record's bytes, beside its mark
inline constexpr std::size_t kPieceBytesMin = 4096;  // a frame is not cut into smaller pieces for want of room

inline constexpr char kTakenBackFault[] = "taken in the shared memory moved backwards";
inline constexpr char kTakenAheadFault[] = "taken in the shared memory is ahead of what was written";
inline constexpr char kMarkPlaceFault[] = "a mark in the shared memory names another place";
inline constexpr char kMarkBytesFault[] = "a mark in the shared memory names a size that does not fit";

inline constexpr std::uint64_t line_ceil(std::uint64_t bytes) noexcept {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

// Never 0, since a record holds at least one byte.
inline constexpr std::uint64_t make_mark(std::uint64_t position, std::size_t bytes) noexcept {
  return (position / kLineBytes) << 32 | bytes;
}

class RingWriter {
 public:
  // `ring`: zeroed, a power of two of bytes, page-aligned.  `taken`: the peer's word.
  RingWriter(std::span<std::byte> ring, std::uint64_t& taken) noexcept
      : ring_(ring.data()), ring_bytes_(ring.size()), taken_(taken) {}

  // Where the bytes of the next record go, at most `wanted` of them; fewer at the end of the ring or for want of room.
  // Empty: not even a useful piece has room now, or `fault`.  wanted > 0.
  std::span<std::byte> room(std::size_t wanted) noexcept;
  // The first `bytes` bytes of what `room` returned last, nearly always all of them, are the record.
  void publish(std::size_t bytes) noexcept;

  std::uint64_t position() const noexcept { return position_; }
  std::uint64_t taken_seen() const noexcept { return taken_seen_; }
  const char* fault() const noexcept { return fault_; }

 private:
  std::uint64_t free_bytes() const noexcept;
  void look_at_taken() noexcept;
  std::span<std::byte> begin(std::size_t bytes) noexcept;
  static constexpr std::size_t kLinesAhead = 3;  // a frame of 64 bytes takes two, and the mark after it one

  void prefetch_next() const noexcept;
  std::uint64_t& mark_at(std::uint64_t position) const noexcept {
    return *reinterpret_cast<std::uint64_t*>(ring_ + (position & (ring_bytes_ - 1)));
  }

  std::byte* const ring_;
  const std::size_t ring_bytes_;
  std::uint64_t& taken_;
  std::uint64_t position_ = 0;    // ours alone: never read back from the shared memory
  std::size_t begun_bytes_ = 0;   // of the record that `room` returned
  std::uint64_t taken_seen_ = 0;  // the last value that was judged
  const char* fault_ = nullptr;
};

class RingReader {
 public:
  // `taken`: our own word.
  RingReader(std::span<std::byte> ring, std::uint64_t& taken) noexcept
      : ring_(ring.data()), ring_bytes_(ring.size()), taken_(taken) {}

  // The bytes of the next record.  The peer can change them at any time: copy first, then judge.  Empty: nothing there,
  // or `fault`.
  std::span<const std::byte> front() noexcept {
    // Pairs with publish: the bytes are there when the mark is.
    const std::uint64_t mark = load_acquire(*reinterpret_cast<std::uint64_t*>(ring_ + place()));
    return mark == 0 ? std::span<const std::byte>() : judge(mark);
  }
  // Gives back the record that `front` returned last.
  void release() noexcept {
    position_ += front_bytes_;
    store_release(taken_, position_);  // pairs with look_at_taken: our reads of the record come before
  }

  std::uint64_t position() const noexcept { return position_; }
  const char* fault() const noexcept { return fault_; }

 private:
  std::size_t place() const noexcept { return position_ & (ring_bytes_ - 1); }
  std::span<const std::byte> judge(std::uint64_t mark) noexcept;

  std::byte* const ring_;
  const std::size_t ring_bytes_;
  std::uint64_t& taken_;
  std::uint64_t position_ = 0;
  std::uint64_t front_bytes_ = 0;  // of the record in front, mark and rest of the last line included
  const char* fault_ = nullptr;
};

}  // namespace ofl
