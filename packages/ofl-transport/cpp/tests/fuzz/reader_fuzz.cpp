// Fuzz target: arbitrary bytes to FrameReader, in pieces and in both of its ways, `take` and `landed`.

#include <algorithm>
#include <vector>

#include "frame_reader.hpp"
#include "stream.hpp"

namespace {

// Hands over bytes as a wire would whose memory they lie in.
class Source {
 public:
  std::size_t give(fuzz::Bytes piece) {
    coming_.insert(coming_.end(), piece.begin(), piece.end());
    return piece.size();
  }
  void end() noexcept { ended_ = true; }
  void retract(const std::byte* memory) noexcept { reader_.retract(memory); }
  const char* fault() const noexcept { return reader_.fault(); }
  bool mid_frame() const noexcept { return reader_.mid_frame(); }
  std::uint64_t bytes_received() const noexcept { return reader_.bytes_received(); }

  ofl::Progress receive(ofl::Inbox& inbox, std::size_t budget) {
    if (fault() != nullptr) {
      HOLDS(!reader_.take(inbox, std::as_bytes(std::span(coming_))), "after a fault nothing is taken");
      return ofl::Progress::failed;
    }
    if (coming_.empty()) return ended_ ? ofl::Progress::closed : ofl::Progress::blocked;
    std::size_t bytes = std::min(budget, coming_.size());
    const std::span<std::byte> room = reader_.body_room();
    bool taken = true;
    if (!room.empty() && budget % 2 == 0) {
      bytes = std::min(bytes, room.size());
      std::memcpy(room.data(), coming_.data(), bytes);
      reader_.landed(inbox, bytes);
    } else {
      // A copy of exactly its size: the sanitizer sees a read beyond it.
      const std::vector<std::uint8_t> piece(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(bytes));
      taken = reader_.take(inbox, std::as_bytes(std::span(piece)));
    }
    coming_.erase(coming_.begin(), coming_.begin() + static_cast<std::ptrdiff_t>(bytes));
    return taken ? ofl::Progress::done : ofl::Progress::failed;
  }

 private:
  ofl::FrameReader reader_;
  std::vector<std::uint8_t> coming_;
  bool ended_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  Source source;
  fuzz::read_stream(source, stream, choices);
  return 0;
}
