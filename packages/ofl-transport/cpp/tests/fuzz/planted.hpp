// A reader of the test alone, right but for one planted defect, so that it is known what the fuzzer would find.  Written
// apart from the library's, without its stage: it collects bytes and reads frames off the front.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "stream.hpp"

namespace fuzz {

enum class Plant {
  none,      // right: it must be found clean
  overrun,   // a body over 4,096 bytes that comes in three reads or more is written one byte too far
  swallow,   // flags with nothing but its highest bit are taken for none
  stale,     // a body goes on into memory that was taken back, if it was half there
  nameless,  // a fault in `reserved` is told without the field's name
  torn,      // a header that comes with its last byte missing loses the byte that completes it
};

class PlantedReader {
 public:
  explicit PlantedReader(Plant plant) noexcept : plant_(plant) {}

  std::size_t give(Bytes piece) {
    coming_.insert(coming_.end(), piece.begin(), piece.end());
    return piece.size();
  }
  void end() noexcept { ended_ = true; }
  void retract(const std::byte* memory) noexcept {
    if (memory != landing_) return;
    if (plant_ == Plant::stale && landed_ * 2 > header_.body_bytes) return;
    landing_ = nullptr;
  }
  const char* fault() const noexcept { return fault_; }
  bool mid_frame() const noexcept { return in_body_ || !held_.empty(); }
  std::uint64_t bytes_received() const noexcept { return received_; }

  ofl::Progress receive(ofl::Inbox& inbox, std::size_t budget) {
    if (fault_ != nullptr) return ofl::Progress::failed;
    if (coming_.empty()) return ended_ ? ofl::Progress::closed : ofl::Progress::blocked;
    const std::size_t bytes = std::min(budget, coming_.size());
    const bool tear = plant_ == Plant::torn && !in_body_ && held_.size() == sizeof header_ - 1;
    held_.insert(held_.end(), coming_.begin() + (tear ? 1 : 0), coming_.begin() + static_cast<std::ptrdiff_t>(bytes));
    coming_.erase(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(bytes));
    received_ += bytes;
    ++reads_;
    while (in_body_ || held_.size() >= sizeof header_) {
      if (!in_body_ && !begin(inbox)) return ofl::Progress::failed;
      take_body();
      if (landed_ < header_.body_bytes) break;
      in_body_ = false;
      inbox.completed(header_);
    }
    return ofl::Progress::done;
  }

 private:
  bool begin(ofl::Inbox& inbox) {
    std::memcpy(&header_, held_.data(), sizeof header_);
    held_.erase(held_.begin(), held_.begin() + sizeof header_);
    ofl::wire::FrameHeader judged = header_;
    if (plant_ == Plant::swallow && judged.flags == 0x8000) judged.flags = 0;
    fault_ = ofl::wire::header_fault(judged);
    if (plant_ == Plant::nameless && fault_ != nullptr && std::string_view(fault_).starts_with("reserved"))
      fault_ = "the header is bad";
    if (fault_ != nullptr) return false;
    const ofl::Landing landing = inbox.landing(header_);
    fault_ = landing.fault;
    landing_ = landing.memory;
    landed_ = 0;
    reads_ = 0;
    in_body_ = true;
    return fault_ == nullptr;
  }

  void take_body() {
    const std::size_t bytes = std::min<std::size_t>(held_.size(), header_.body_bytes - landed_);
    if (landing_ != nullptr && bytes > 0) std::memcpy(landing_ + landed_, held_.data(), bytes);
    landed_ += bytes;
    if (plant_ == Plant::overrun && landing_ != nullptr && landed_ > 4096 && landed_ == header_.body_bytes && reads_ >= 2)
      landing_[landed_] = std::byte{0};
    held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(bytes));
  }

  Plant plant_;
  std::vector<std::uint8_t> coming_;  // given, not read
  std::vector<std::uint8_t> held_;    // read, not parsed
  bool ended_ = false;
  bool in_body_ = false;
  ofl::wire::FrameHeader header_{};
  std::byte* landing_ = nullptr;
  std::size_t landed_ = 0;
  std::size_t reads_ = 0;  // since the header
  std::uint64_t received_ = 0;
  const char* fault_ = nullptr;
};

}  // namespace fuzz
