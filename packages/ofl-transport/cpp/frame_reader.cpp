#include "frame_reader.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "copy.hpp"

namespace ofl {

bool FrameReader::take(Inbox& inbox, std::span<const std::byte> bytes) noexcept {
  if (fault_ != nullptr) return false;
  received_ += bytes.size();
  while (!bytes.empty()) {
    if (!in_body_) {
      bytes = take_header(bytes);
      if (header_bytes_ < sizeof header_) break;
      if (!begin_body(inbox)) return false;
      continue;
    }
    const std::size_t here = std::min<std::size_t>(header_.body_bytes - landed_, bytes.size());
    if (landing_ != nullptr) copy_bytes(landing_ + landed_, bytes.data(), here);
    bytes = bytes.subspan(here);
    advance(inbox, here);
  }
  return true;
}

// A header may arrive in pieces.  It is judged in our own memory, where the peer cannot change it any more.
std::span<const std::byte> FrameReader::take_header(std::span<const std::byte> bytes) noexcept {
  if (header_bytes_ == 0 && bytes.size() >= sizeof header_) {  // nearly always: a copy of constant size
    std::memcpy(&header_, bytes.data(), sizeof header_);
    header_bytes_ = sizeof header_;
    return bytes.subspan(sizeof header_);
  }
  const std::size_t here = std::min(sizeof header_ - header_bytes_, bytes.size());
  std::memcpy(reinterpret_cast<std::byte*>(&header_) + header_bytes_, bytes.data(), here);
  header_bytes_ += here;
  return bytes.subspan(here);
}

bool FrameReader::begin_body(Inbox& inbox) noexcept {
  header_bytes_ = 0;
  fault_ = wire::header_fault(header_);
  Landing landing;
  if (fault_ == nullptr) {
    landing = inbox.landing(header_);
    fault_ = landing.fault;
  }
  if (fault_ != nullptr) return false;
  landing_ = landing.memory;
  landed_ = 0;
  in_body_ = true;
  advance(inbox, 0);
  return true;
}

void FrameReader::advance(Inbox& inbox, std::size_t bytes) noexcept {
  landed_ += bytes;
  if (landed_ < header_.body_bytes) return;
  in_body_ = false;
  inbox.completed(header_);
}

std::span<std::byte> FrameReader::body_room() const noexcept {
  if (!in_body_ || landing_ == nullptr) return {};
  return {landing_ + landed_, header_.body_bytes - landed_};
}

void FrameReader::landed(Inbox& inbox, std::size_t bytes) noexcept {
  assert(bytes > 0 && bytes <= body_room().size());
  received_ += bytes;
  advance(inbox, bytes);
}

void FrameReader::retract(const std::byte* memory) noexcept {
  if (in_body_ && landing_ == memory) landing_ = nullptr;
}

}  // namespace ofl
