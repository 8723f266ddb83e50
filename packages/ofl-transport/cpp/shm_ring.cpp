#include "shm_ring.hpp"

#include <algorithm>
#include <cassert>

namespace ofl {

// For one record: the line of the mark after it is not free.
std::uint64_t RingWriter::free_bytes() const noexcept {
  const std::uint64_t unfree = position_ - taken_seen_ + kLineBytes;
  return unfree < ring_bytes_ ? ring_bytes_ - unfree : 0;
}

void RingWriter::look_at_taken() noexcept {
  // Pairs with RingReader::release: what we write there now comes after the reader's last look at it.
  const std::uint64_t taken = load_acquire(taken_);
  if (taken > position_) {
    fault_ = kTakenAheadFault;
  } else if (taken < taken_seen_) {
    fault_ = kTakenBackFault;
  } else {
    taken_seen_ = taken / kLineBytes * kLineBytes;  // a peer that stops inside a line has not given it back
  }
}

std::span<std::byte> RingWriter::room(std::size_t wanted) noexcept {
  const std::size_t place = position_ & (ring_bytes_ - 1);
  const std::size_t bytes = std::min(wanted, ring_bytes_ - place - kMarkBytes);
  const std::uint64_t needed = line_ceil(kMarkBytes + bytes);
  if (needed <= free_bytes()) return begin(bytes);  // nearly always: without a look at the peer's line
  look_at_taken();
  if (fault_ != nullptr) return {};
  const std::uint64_t free = free_bytes();
  if (needed <= free) return begin(bytes);
  return free < kPieceBytesMin ? std::span<std::byte>() : begin(free - kMarkBytes);
}

std::span<std::byte> RingWriter::begin(std::size_t bytes) noexcept {
  begun_bytes_ = bytes;
  // Now and not between the record's first line and its mark: a wait for this line would let the reader take that one
  // away.  The reader comes to this place only after it saw our mark.
  store_relaxed(mark_at(position_ + line_ceil(kMarkBytes + bytes)), 0);
  return {reinterpret_cast<std::byte*>(&mark_at(position_)) + kMarkBytes, bytes};
}

void RingWriter::publish(std::size_t bytes) noexcept {
  const std::uint64_t next = position_ + line_ceil(kMarkBytes + bytes);
  assert(bytes > 0 && bytes <= begun_bytes_ && next - taken_seen_ + kLineBytes <= ring_bytes_);
  if (bytes != begun_bytes_) store_relaxed(mark_at(next), 0);
  // Pairs with RingReader::front: the bytes are there when the mark is, and so is the zero of the next mark.
  store_release(mark_at(position_), make_mark(position_, bytes));
  position_ = next;
  begun_bytes_ = 0;
  prefetch_next();
}

// The lines of the next record are fetched while this one is on its way, and not when they are written: after a lap of
// the ring they are in no near cache, or in the reader's.  Not the first of them, which the reader looks at.
void RingWriter::prefetch_next() const noexcept {
  for (std::size_t line = 1; line <= kLinesAhead; ++line) prefetch_to_write(&mark_at(position_ + line * kLineBytes));
}

std::span<const std::byte> RingReader::judge(std::uint64_t mark) noexcept {
  const std::uint64_t bytes = mark & 0xFFFFFFFFU;
  const std::uint64_t whole = line_ceil(kMarkBytes + bytes);
  if (mark != make_mark(position_, bytes)) {
    fault_ = kMarkPlaceFault;
  } else if (bytes == 0 || whole > ring_bytes_ - place() || whole + kLineBytes > ring_bytes_) {
    fault_ = kMarkBytesFault;
  } else {
    front_bytes_ = whole;
    // On its way while the header is judged.
    if (whole > kLineBytes) __builtin_prefetch(ring_ + place() + kLineBytes);
    return {ring_ + place() + kMarkBytes, bytes};
  }
  return {};
}

}  // namespace ofl
