#include "shm_ring.hpp"

#include <algorithm>
#include <cassert>

namespace ofl {

// For one record: the line of the mark after it is not free.
std::uint64_t RingWriter::free_bytes() const noexcept {
  const std::uint64_t unfree = position_ - taken_seen_ + kLineBytes;
  return unfree < ring_bytes_ ? ring_bytes_ - unfree : 0;
}

bool RingWriter::look_at_taken() noexcept {
  // Pairs with RingReader::release: what we write there now comes after the reader's last look at it.
  const std::uint64_t taken = load_acquire(taken_);
  if (taken == taken_seen_) return false;
  if (taken > position_) {
    fault_ = kTakenAheadFault;
  } else if (taken < taken_seen_) {
    fault_ = kTakenBackFault;
  } else {
    taken_seen_ = taken / kLineBytes * kLineBytes;  // a peer that stops inside a line has not given it back
  }
  return fault_ == nullptr;
}

std::span<std::byte> RingWriter::room(std::size_t wanted) noexcept {
  const std::size_t place = position_ & (ring_bytes_ - 1);
  const std::size_t bytes = std::min(wanted, ring_bytes_ - place - kMarkBytes);
  const std::uint64_t needed = line_ceil(kMarkBytes + bytes);
  std::byte* const start = ring_ + place + kMarkBytes;
  if (needed <= free_bytes()) return {start, bytes};  // nearly always: without a look at the peer's line
  look_at_taken();
  if (fault_ != nullptr) return {};
  const std::uint64_t free = free_bytes();
  if (needed <= free) return {start, bytes};
  if (free < kPieceBytesMin) return {};
  return {start, free - kMarkBytes};
}

void RingWriter::publish(std::size_t bytes) noexcept {
  const std::uint64_t next = position_ + line_ceil(kMarkBytes + bytes);
  assert(bytes > 0 && next - taken_seen_ + kLineBytes <= ring_bytes_);
  // Pairs with the acquire in RingReader::front, by way of the release below: the reader comes to this place only after
  // it saw our mark.
  store_relaxed(mark_at(next), 0);
  store_release(mark_at(position_), make_mark(position_, bytes));  // pairs with RingReader::front: the bytes are there
  position_ = next;
  prefetch_next();
}

// Fetches the lines of the next small record and of the mark after it, while nobody waits for us: they are still in the
// reader's cache, and the mark cannot be seen before they are here.
void RingWriter::prefetch_next() const noexcept {
  for (std::size_t i = 0; i < kLinesAhead; ++i)
    __builtin_prefetch(ring_ + ((position_ + i * kLineBytes) & (ring_bytes_ - 1)), 1);
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
