#include "rdma_segments.hpp"

#include <algorithm>
#include <cstring>

namespace ofl {

namespace {

bool stays(const Part& part, const Memory& lent) noexcept {
  return part.bytes >= kLentBytesMin && lent.contains(part.base, part.bytes);
}

}  // namespace

const char* SegmentReader::begin(std::span<const std::byte>& segment, Inbox& inbox) noexcept {
  if (segment.size() < sizeof header_) return "a segment begins a frame and is shorter than a header";
  std::memcpy(&header_, segment.data(), sizeof header_);
  segment = segment.subspan(sizeof header_);
  const char* clause = wire::header_fault(header_);
  if (clause == nullptr && segment.size() > header_.body_bytes)
    clause = "a segment goes on after the end of its frame";
  if (clause != nullptr) return clause;
  const Landing landing = inbox.landing(header_);
  landing_ = landing.memory;
  landed_ = 0;
  left_ = header_.body_bytes;
  return landing.fault;
}

const char* SegmentReader::take(std::span<const std::byte> segment, Inbox& inbox) noexcept {
  if (left_ == 0) {
    if (const char* clause = begin(segment, inbox)) return clause;
  } else if (segment.size() > left_) {
    return "a segment goes on after the end of its frame";
  }
  if (landing_ != nullptr && !segment.empty()) std::memcpy(landing_ + landed_, segment.data(), segment.size());
  landed_ += segment.size();
  left_ -= segment.size();
  if (left_ == 0) inbox.completed(header_);
  return nullptr;
}

void SegmentReader::retract(const std::byte* memory) noexcept {
  if (left_ > 0 && landing_ == memory) landing_ = nullptr;
}

std::size_t Gather::add(const std::byte* base, std::size_t bytes, bool lent) noexcept {
  if (lent) {
    if (count_ == pieces_max_) return 0;
    pieces_[count_++] = {base, static_cast<std::uint32_t>(bytes), true};
    lends_ = true;
    return bytes;
  }
  const bool grows = count_ > 0 && !pieces_[count_ - 1].lent;
  const std::size_t taken = std::min(bytes, slot_.size() - copied_);
  if (taken == 0 || (!grows && count_ == pieces_max_)) return 0;
  std::byte* const to = slot_.data() + copied_;
  std::memcpy(to, base, taken);
  copied_ += taken;
  if (grows) {
    pieces_[count_ - 1].bytes += static_cast<std::uint32_t>(taken);
  } else {
    pieces_[count_++] = {to, static_cast<std::uint32_t>(taken), false};
  }
  return taken;
}

std::size_t Gather::take(const Outgoing& frame, std::size_t from, std::size_t bytes) noexcept {
  std::size_t taken = 0;
  bool full = false;
  const auto visit = [&](const void* base, std::size_t size, bool lent) noexcept {
    if (full || from >= size) {
      from -= std::min(from, size);
      return;
    }
    const std::size_t wanted = std::min(size - from, bytes - taken);
    const std::size_t got = wanted == 0 ? 0 : add(static_cast<const std::byte*>(base) + from, wanted, lent);
    taken += got;
    from = 0;
    full = got < wanted || taken == bytes;
  };
  visit(&frame.header(), sizeof frame.header(), false);
  for (const Part& part : frame.parts()) visit(part.base, part.bytes, lent_ != nullptr && stays(part, *lent_));
  return taken;
}

void Gather::take_in_place(const Outgoing& frame) noexcept {
  pieces_[0] = {reinterpret_cast<const std::byte*>(&frame.header()), sizeof frame.header(), false};
  count_ = 1;
  for (const Part& part : frame.parts()) {
    if (part.bytes == 0) continue;
    pieces_[count_++] = {static_cast<const std::byte*>(part.base), static_cast<std::uint32_t>(part.bytes), false};
  }
}

bool can_gather_body(const Outgoing& frame, const Memory& lent, std::size_t pieces_max) noexcept {
  std::size_t copied = 0;
  std::size_t pieces = 0;
  bool copying = false;
  bool lends = false;
  for (const Part& part : frame.parts()) {
    if (part.bytes == 0) continue;
    const bool stay = stays(part, lent);
    if (stay || !copying) ++pieces;
    if (!stay) copied += part.bytes;
    copying = !stay;
    lends = lends || stay;
  }
  return lends && pieces <= pieces_max && copied <= kSegmentBytes;
}

}  // namespace ofl
