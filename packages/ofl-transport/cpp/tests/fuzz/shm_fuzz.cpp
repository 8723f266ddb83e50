// Fuzz target: a server's end of a shared-memory connection whose client writes anything anywhere in the region, its own
// words and the server's, rings bells, hangs up, and at times sends sound records of arbitrary bytes.
//
//     The server's end goes on, or has one fault that names a field; it never waits, and never writes outside.

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <sys/socket.h>

#include "shm_channel.hpp"
#include "stream.hpp"

namespace {

constexpr std::size_t kRing = ofl::kRingBytesMin;
constexpr std::size_t kRegion = ofl::kShmHeaderBytes + 2 * kRing;

// Lands everything within the limit, and drops some.
class Any final : public ofl::Inbox {
 public:
  explicit Any(fuzz::Choices& choices) noexcept : choices_(choices) {}
  ofl::Landing landing(const ofl::wire::FrameHeader& header) noexcept override {
    HOLDS(ofl::wire::header_fault(header) == nullptr, "a header with a fault reaches nobody");
    if (header.body_bytes > fuzz::Judge::kBodyBytesMax) return {nullptr, fuzz::Judge::kOversized};
    memory_ = choices_.one_in(4) ? nullptr : std::make_unique<fuzz::LandingMemory>(header.body_bytes);
    return {memory_ ? memory_->data() : nullptr, nullptr};
  }
  void completed(const ofl::wire::FrameHeader&) noexcept override { memory_.reset(); }
  const std::byte* memory() const noexcept { return memory_ ? memory_->data() : nullptr; }
  void take_back() noexcept { memory_.reset(); }

 private:
  fuzz::Choices& choices_;
  std::unique_ptr<fuzz::LandingMemory> memory_;
};

class Rig {
 public:
  Rig(fuzz::Bytes stream, fuzz::Choices& choices) : stream_(stream), choices_(choices), inbox_(choices) {
    int ends[2];
    HOLDS(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "there is a socket pair");
    client_.reset(ends[1]);
    ofl::ShmRegion region;
    ofl::UniqueFd memory;
    HOLDS(ofl::ShmRegion::make(kRing, region, memory).status == OFL_OK, "there is shared memory");
    void* const base = ::mmap(nullptr, kRegion, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    HOLDS(base != MAP_FAILED, "the client maps it too");
    base_ = static_cast<std::byte*>(base);
    header_ = static_cast<ofl::ShmHeader*>(base);
    channel_ = std::make_unique<ofl::ShmChannel>(std::move(region), ofl::UniqueFd(ends[0]), false);
  }
  ~Rig() {
    channel_.reset();
    ::munmap(base_, kRegion);
  }
  Rig(const Rig&) = delete;
  Rig& operator=(const Rig&) = delete;

  void run() {
    for (int turn = 0; turn < 100; ++turn) {
      act();
      const bool broken = channel_->fault() != nullptr;
      serve();
      if (!broken) continue;
      HOLDS(fuzz::names_a_field(channel_->fault()), "a fault names a field");
      HOLDS(channel_->receive(inbox_, 1U << 16) == ofl::Progress::failed, "a fault is for ever");
      return;
    }
  }

 private:
  // The client's turn.
  void act() {
    switch (choices_.below(8)) {
      case 0: return poke_word();
      case 1: return poke_bytes();
      case 2: {
        const std::array<char, 80> bells{};
        static_cast<void>(::send(client_.get(), bells.data(), 1 + choices_.below(80), MSG_DONTWAIT | MSG_NOSIGNAL));
        return;
      }
      case 3:
        if (choices_.one_in(16)) client_.reset();
        return;
      default: return write_record();
    }
  }

  // As the rules say, at the place where the server looks next.
  void write_record() {
    const std::uint64_t place = position_ % kRing;
    const std::size_t bytes = std::min({choices_.piece(), stream_.size(), kRing - place - ofl::kMarkBytes,
                                        std::size_t{kRing / 2}});
    if (bytes == 0) return;
    std::byte* const record = base_ + ofl::kShmHeaderBytes + place;
    std::memcpy(record + ofl::kMarkBytes, stream_.data(), bytes);
    stream_ = stream_.subspan(bytes);
    const std::uint64_t next = position_ + ofl::line_ceil(ofl::kMarkBytes + bytes);
    const std::uint64_t none = 0;
    std::memcpy(base_ + ofl::kShmHeaderBytes + next % kRing, &none, sizeof none);
    const std::uint64_t mark = ofl::make_mark(position_, bytes);
    std::memcpy(record, &mark, sizeof mark);
    position_ = next;
  }

  void poke_word() {
    std::uint64_t* const words[] = {&header_->client.taken,       &header_->client.sleeps, &header_->client.room_wanted,
                                    &header_->client.state,       &header_->server.taken,  &header_->server.sleeps,
                                    &header_->server.room_wanted, &header_->server.state,  &header_->version,
                                    &header_->ring_bytes,         &header_->region_bytes,  &header_->magic};
    const std::uint64_t near = choices_.one_in(2) ? position_ : header_->server.taken;
    *words[choices_.below(std::size(words))] = choices_.one_in(3) ? choices_.below(SIZE_MAX) : near + choices_.below(256) - 128;
  }

  void poke_bytes() {
    const std::size_t bytes = std::min(choices_.piece(), std::min(stream_.size(), kRegion));
    if (bytes == 0) return;
    std::memcpy(base_ + choices_.below(kRegion - bytes + 1), stream_.data(), bytes);
    stream_ = stream_.subspan(bytes);
  }

  // The server's turn.
  void serve() {
    switch (choices_.below(6)) {
      case 0: static_cast<void>(channel_->arm()); return;
      case 1: static_cast<void>(channel_->poll(inbox_, choices_.piece())); return;
      case 2: return send();
      default: static_cast<void>(channel_->receive(inbox_, choices_.piece())); break;
    }
    if (inbox_.memory() == nullptr || !choices_.one_in(8)) return;
    channel_->retract(inbox_.memory());
    inbox_.take_back();
  }

  void send() {
    const std::string body(choices_.piece(), 'r');
    const ofl::Part part{body.data(), body.size()};
    ofl::Outgoing frame(ofl::wire::make_header(ofl::wire::FrameType::reply, 1, body.size()), {&part, 1});
    const ofl::Progress progress = channel_->send(frame);
    HOLDS((progress == ofl::Progress::done) == (frame.sent() == frame.size()), "what is done was sent whole");
  }

  fuzz::Bytes stream_;
  fuzz::Choices& choices_;
  Any inbox_;
  ofl::UniqueFd client_;
  std::byte* base_ = nullptr;
  ofl::ShmHeader* header_ = nullptr;
  std::unique_ptr<ofl::ShmChannel> channel_;
  std::uint64_t position_ = 0;  // of the client's next record
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::uint64_t seed = 0;
  fuzz::Bytes stream;
  if (!fuzz::split(data, size, seed, stream)) return 0;
  fuzz::Choices choices(seed);
  Rig(stream, choices).run();
  return 0;
}
