// Fuzz target: a client whose server sends arbitrary bytes, sound replies at the wrong moment, and, on a one-sided wire,
// completions of placements that nobody asked for, while the client submits, waits, cancels and settles.
//
//     Whatever a server sends, memory belongs to the caller again once its call has ended, and all of it once the client is
//     lost: nothing of the peer lands there.  The client goes on, or is lost with a reason.

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "client.hpp"
#include "frame_reader.hpp"
#include "stream.hpp"

namespace {

using ofl::wire::FrameType;

constexpr std::uint32_t kFrameBytesMax = 1U << 16;
constexpr std::uint32_t kCallsMax = 8;

// The client's end of a wire that the test plays: frames as bytes, and completions of one-sided writes beside them.
class Wire final : public ofl::Channel, public ofl::Registrar {
 public:
  explicit Wire(bool one_sided) : one_sided_(one_sided) {
    int ends[2];
    HOLDS(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0, "there is a socket pair");
    socket_.reset(ends[0]);
    peer_.reset(ends[1]);
  }

  // The test's side.
  void say(fuzz::Bytes bytes) { coming_.insert(coming_.end(), bytes.begin(), bytes.end()); }
  void complete(std::uint32_t slot, std::uint64_t bytes) { placements_.emplace_back(slot, bytes); }

  // The client's side.
  ofl::Capabilities capabilities() const noexcept override {
    return {.parts_max = 64, .registered_memory = one_sided_, .direct_placement = true, .one_sided = one_sided_};
  }
  std::string describe() const override { return "fuzz"; }
  int descriptor() const noexcept override { return socket_.get(); }
  ofl::Registrar* registrar() noexcept override { return one_sided_ ? this : nullptr; }
  ofl::Outcome add(std::span<std::byte>, std::unique_ptr<ofl::Registration>& registration) override {
    registration = std::make_unique<Known>();
    return {};
  }
  void retract(const std::byte* memory) noexcept override { frames_.retract(memory); }
  ofl::Progress send(ofl::Outgoing& frame) noexcept override {
    if (down_.load()) return ofl::Progress::failed;
    frame.advance(frame.size() - frame.sent());
    return ofl::Progress::done;
  }
  ofl::Progress receive(ofl::Inbox& inbox, std::size_t) noexcept override {
    if (fault_ != nullptr) return ofl::Progress::failed;
    // As a socket, whose bytes can be read although it was shut down.
    const std::vector<std::uint8_t> bytes = std::exchange(coming_, {});
    if (!frames_.take(inbox, std::as_bytes(std::span(bytes)))) {
      fault_ = frames_.fault();
      return ofl::Progress::failed;
    }
    for (const auto& [slot, size] : std::exchange(placements_, {})) {
      if (down_.load()) return ofl::Progress::closed;
      fault_ = inbox.placed(slot, size);
      if (fault_ != nullptr) return ofl::Progress::failed;
    }
    return down_.load() ? ofl::Progress::closed : ofl::Progress::blocked;
  }
  bool readable_now() noexcept override { return !coming_.empty() || !placements_.empty(); }
  bool mid_frame() const noexcept override { return frames_.mid_frame(); }
  std::uint64_t bytes_received() const noexcept override { return frames_.bytes_received(); }
  void shut_down() noexcept override {
    down_.store(true);
    ::shutdown(socket_.get(), SHUT_RDWR);
  }
  void end_sending() noexcept override {}
  const char* fault() const noexcept override { return fault_; }

 private:
  struct Known final : ofl::Registration {
    std::uint32_t local_key() const noexcept override { return 1; }
    std::uint32_t remote_key() const noexcept override { return 2; }
  };

  const bool one_sided_;
  ofl::UniqueFd socket_;
  ofl::UniqueFd peer_;
  ofl::FrameReader frames_;
  std::vector<std::uint8_t> coming_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> placements_;
  const char* fault_ = nullptr;
  std::atomic<bool> down_{false};
};

// One call and the memory that its reply may land in, which nobody but the call may touch: outside of a call's life the
// sanitizer watches all of it.
struct Call {
  std::uint64_t sequence = 0;  // 0: none yet
  std::unique_ptr<fuzz::LandingMemory> bytes;
  std::shared_ptr<ofl::Memory> memory;  // without `bytes`: the caller has taken them back

  std::size_t room() const { return memory ? memory->bytes().size() : 9000; }
};

class Rig {
 public:
  Rig(fuzz::Bytes stream, fuzz::Choices& choices) : stream_(stream), choices_(choices), one_sided_(choices.one_in(2)) {
    auto wire = std::make_unique<Wire>(one_sided_);
    wire_ = wire.get();
    ofl::ClientOptions options;
    options.heartbeat = 60 * ofl::kSecond;  // the keeper sleeps: what happens follows from the input
    options.loss = 120 * ofl::kSecond;
    ofl::Agreement agreement;
    agreement.frame_bytes_max = kFrameBytesMax;
    agreement.calls_max = kCallsMax;
    client_ = std::make_unique<ofl::Client>(std::move(wire), options, agreement);
  }

  void run() {
    for (int turn = 0; turn < 80; ++turn) {
      Call& call = calls_[choices_.below(std::size(calls_))];
      switch (choices_.below(8)) {
        case 0: submit(call); break;
        case 1:
          if (choices_.one_in(8)) arbitrary();  // mostly the end of all
          break;
        case 2: reply(call); break;
        case 3: word(call); break;
        case 4: complete(call); break;
        case 5: cancel(call); break;
        case 6: settle(call); break;
        default: wait(call); break;
      }
      if (client_->alive()) continue;
      HOLDS(!client_->reason().empty(), "a loss has a reason");
      after_loss();
      break;
    }
    client_->close();
    for (Call& call : calls_) call = {};  // the memory is checked as it goes
  }

 private:
  // The memory is the caller's, and the peer goes on.
  void after_loss() {
    for (Call& call : calls_) {
      if (!choices_.one_in(4)) call.bytes.reset();
      if (choices_.one_in(2)) reply(call);
    }
    for (Call& call : calls_) {
      switch (choices_.below(3)) {
        case 0: wait(call); break;
        case 1: cancel(call); break;
        default: settle(call); break;
      }
    }
    HOLDS(!client_->alive(), "what was lost stays lost");
  }

  // Mostly of a call that waits for one.
  void complete(const Call& call) {
    if (choices_.one_in(32)) {
      wire_->complete(static_cast<std::uint32_t>(choices_.below(SIZE_MAX)), choices_.below(SIZE_MAX));
    } else if (call.bytes) {
      wire_->complete(ofl::wire::slot_of(call.sequence).index, choices_.below(call.room() + 1) + (choices_.one_in(16) ? 1 : 0));
    }
  }

  void submit(Call& call) {
    if (call.sequence != 0) return;  // its memory is in use
    ofl::CallMemory memory;
    if (!choices_.one_in(3)) {
      call.bytes = std::make_unique<fuzz::LandingMemory>(1 + choices_.below(9000));
      HOLDS(ofl::Memory::create(call.bytes->data(), call.bytes->bytes(), false, call.memory).status == OFL_OK, "memory");
      HOLDS(client_->register_memory(*call.memory).status == OFL_OK, "memory is registered");
      memory.into = call.memory;
      memory.bytes = call.bytes->bytes();
    }
    const ofl::Part part{"request", 7};
    const ofl::Status status = client_->submit({&part, 1}, memory, 0, call.sequence);
    HOLDS(status == OFL_OK || status == OFL_LOST || status == OFL_LIMIT, "a request is sent, or the client is lost or full");
    if (status != OFL_OK) end(call);
    if (status == OFL_OK) HOLDS(call.sequence > std::exchange(last_, call.sequence), "sequence numbers rise");
  }

  // The caller's again: whatever the wire still holds for the call must not touch it.
  void end(Call& call) {
    call.memory.reset();
    call.bytes.reset();
    call.sequence = 0;
  }

  void arbitrary() {
    const std::size_t bytes = std::min(choices_.piece(), stream_.size());
    wire_->say(stream_.first(bytes));
    stream_ = stream_.subspan(bytes);
  }

  // A sound reply, or the beginning of one.
  void reply(const Call& call) {
    if (call.sequence == 0) return;
    const std::size_t bytes = choices_.below(call.room() + 1) + (choices_.one_in(16) ? 1 : 0);
    std::vector<std::uint8_t> frame(sizeof(ofl::wire::FrameHeader) + bytes, std::uint8_t{0x55});
    const auto header = ofl::wire::make_header(FrameType::reply, call.sequence, bytes);
    std::memcpy(frame.data(), &header, sizeof header);
    if (choices_.one_in(4)) frame.resize(1 + choices_.below(frame.size()));
    wire_->say(frame);
  }

  void word(const Call& call) {
    const FrameType types[] = {FrameType::cancelled, FrameType::cancelled, FrameType::heartbeat, FrameType::close};
    const FrameType type = types[choices_.below(choices_.one_in(8) ? 4 : 3)];
    if (type == FrameType::cancelled && call.sequence == 0) return;
    const auto header = ofl::wire::make_header(type, type == FrameType::cancelled ? call.sequence : 0, 0);
    wire_->say({reinterpret_cast<const std::uint8_t*>(&header), sizeof header});
  }

  void wait(Call& call) {
    if (call.sequence == 0) return;
    std::span<const std::byte> body;
    const ofl::Status status = client_->wait(call.sequence, 0, body);
    if (status == OFL_OK) {
      HOLDS(body.size() <= (call.memory ? call.room() : kFrameBytesMax), "a reply keeps to its room");
      HOLDS(!call.memory || body.data() == call.memory->bytes().data(), "a placed reply lies where it was wanted");
      unsigned sum = 0;
      if (!call.memory || call.bytes)
        for (const std::byte byte : body) sum += static_cast<unsigned>(byte);
      HOLDS(sum <= 255 * body.size(), "every byte of a reply can be read");
      end(call);
    } else {
      HOLDS(status == OFL_DEADLINE || status == OFL_INTERRUPTED || status == OFL_LOST || status == OFL_UNKNOWN,
            "a wait ends in one of its ways");
      HOLDS(status != OFL_DEADLINE || client_->alive(), "nobody waits for what was lost");
    }
  }

  void cancel(Call& call) {
    if (call.sequence == 0) return;
    const ofl::Status status = client_->cancel(call.sequence);
    HOLDS(status == OFL_OK || status == OFL_UNKNOWN || (status == OFL_QUARANTINED && one_sided_ && call.bytes),
          "only a peer that can write keeps memory in quarantine");
    if (status == OFL_OK) end(call);
  }

  void settle(Call& call) {
    if (call.sequence == 0) return;
    const ofl::Status status = client_->settled(call.sequence, 0);
    HOLDS(status == OFL_OK || status == OFL_DEADLINE || status == OFL_INTERRUPTED || status == OFL_INVALID,
          "a quarantine ends, or not yet");
    HOLDS(status != OFL_DEADLINE || client_->alive(), "a loss ends every quarantine");
    if (status == OFL_OK) end(call);
  }

  fuzz::Bytes stream_;
  fuzz::Choices& choices_;
  const bool one_sided_;
  std::unique_ptr<ofl::Client> client_;
  Wire* wire_ = nullptr;  // the client's
  Call calls_[6];
  std::uint64_t last_ = 0;
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
