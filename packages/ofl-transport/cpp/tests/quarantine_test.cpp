// Memory that a cancelled call's peer may still write to, seen from every connection of the process.  The peer is the test:
// a wire with one-sided writes whose completions come when the test says so.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <sys/socket.h>

#include "check.hpp"
#include "client.hpp"

namespace {

using ofl::Memory;
using ofl::Status;

// What every connection of a device shares.
struct Device final : ofl::Registrar {
  struct Known final : ofl::Registration {
    std::uint32_t local_key() const noexcept override { return 1; }
    std::uint32_t remote_key() const noexcept override { return 2; }
  };
  ofl::Outcome add(std::span<std::byte>, std::unique_ptr<ofl::Registration>& registration) override {
    registration = std::make_unique<Known>();
    return {};
  }
};

// Takes whatever is sent.
class Wire final : public ofl::Channel {
 public:
  explicit Wire(Device& device) : device_(device) {
    int ends[2] = {-1, -1};
    CHECK(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    socket_.reset(ends[0]);
    peer_.reset(ends[1]);
  }

  void complete(std::uint64_t sequence, std::uint64_t bytes) {
    completions_.emplace_back(ofl::wire::slot_of(sequence).index, bytes);
  }

  // From now on.
  void acknowledge() { acknowledged_ = true; }

  ofl::Capabilities capabilities() const noexcept override { return {64, true, true, true}; }
  std::string describe() const override { return "test"; }
  int descriptor() const noexcept override { return socket_.get(); }
  ofl::Registrar* registrar() noexcept override { return &device_; }
  void retract(const std::byte*) noexcept override {}
  ofl::Progress send(ofl::Outgoing& frame) noexcept override {
    frame.advance(frame.size() - frame.sent());
    if (ofl::Memory* const lent = frame.lent()) {
      lent->lend();
      read_.push_back(lent->shared_from_this());
    }
    return ofl::Progress::done;
  }
  void reap() noexcept override {
    if (!acknowledged_) return;
    for (const auto& lent : std::exchange(read_, {})) lent->give_back();
  }
  ofl::Progress receive(ofl::Inbox& inbox, std::size_t) noexcept override {
    for (const auto& [slot, bytes] : std::exchange(completions_, {})) CHECK(inbox.placed(slot, bytes) == nullptr);
    return ofl::Progress::blocked;
  }
  bool readable_now() noexcept override { return !completions_.empty(); }
  bool mid_frame() const noexcept override { return false; }
  std::uint64_t bytes_received() const noexcept override { return 0; }
  void shut_down() noexcept override { ::shutdown(socket_.get(), SHUT_RDWR); }
  void end_sending() noexcept override {}
  const char* fault() const noexcept override { return "none"; }

 private:
  Device& device_;
  ofl::UniqueFd socket_;
  ofl::UniqueFd peer_;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> completions_;
  std::vector<std::shared_ptr<Memory>> read_;
  bool acknowledged_ = false;
};

struct Connected {
  explicit Connected(Device& device) {
    auto made = std::make_unique<Wire>(device);
    wire = made.get();
    ofl::ClientOptions options;
    options.heartbeat = 60 * ofl::kSecond;  // its keeper sleeps
    options.loss = 120 * ofl::kSecond;
    ofl::Agreement agreement;
    agreement.frame_bytes_max = 1U << 16;
    agreement.calls_max = 8;
    client = std::make_unique<ofl::Client>(std::move(made), options, agreement);
  }

  Status submit(const std::shared_ptr<Memory>& into, std::size_t offset, std::size_t bytes, std::uint64_t& sequence) {
    sequence = 0;
    return client->submit({}, {into, offset, bytes, nullptr}, ofl::now_ns() + ofl::kSecond, sequence);
  }

  Wire* wire = nullptr;  // the client's
  std::unique_ptr<ofl::Client> client;
};

struct Shared {
  Shared() {
    CHECK(Memory::create(nullptr, 1000, false, memory));
    CHECK(one.client->register_memory(*memory));
  }

  Device device;
  std::shared_ptr<Memory> memory;
  Connected one{device};
  Connected other{device};
  std::uint64_t sequence = 0;
  std::uint64_t unused = 0;
};

}  // namespace

TEST(a_range_in_quarantine_on_one_connection_is_refused_on_another_until_it_is_settled) {
  Shared both;
  CHECK(both.one.submit(both.memory, 100, 200, both.sequence) == OFL_OK);
  CHECK(both.other.submit(both.memory, 299, 10, both.unused) == OFL_OVERLAP);
  CHECK(both.one.client->cancel(both.sequence) == OFL_QUARANTINED);
  for (const auto& [offset, bytes] : {std::pair{100UL, 200UL}, {0UL, 101UL}, {299UL, 1UL}, {0UL, 1000UL}})
    CHECK(both.other.submit(both.memory, offset, bytes, both.unused) == OFL_QUARANTINED);
  std::uint64_t beside = 0;
  CHECK(both.other.submit(both.memory, 300, 700, beside) == OFL_OK);
  CHECK(both.one.client->settled(both.sequence, 0) == OFL_DEADLINE);
  both.one.wire->complete(both.sequence, 200);
  CHECK(both.one.client->settled(both.sequence, 0) == OFL_OK);
  CHECK(both.other.submit(both.memory, 100, 200, both.unused) == OFL_OK);
  CHECK(both.one.submit(both.memory, 0, 1000, both.sequence) == OFL_OVERLAP);
}

TEST(a_reply_that_was_taken_gives_its_range_to_all_connections) {
  Shared both;
  CHECK(both.one.submit(both.memory, 0, 1000, both.sequence) == OFL_OK);
  both.one.wire->complete(both.sequence, 7);
  std::uint64_t second = 0;
  CHECK(both.other.submit(both.memory, 0, 1, second) == OFL_OVERLAP);
  std::span<const std::byte> body;
  CHECK(both.one.client->wait(both.sequence, 0, body) == OFL_OK && body.size() == 7);
  CHECK(both.other.submit(both.memory, 0, 1, second) == OFL_OK);
}

TEST(requests_that_were_cancelled_while_their_memory_was_read_free_their_places_when_they_were_acknowledged) {
  Shared both;
  const auto submit = [&] {
    std::uint64_t sequence = 0;
    const Status status = both.one.client->submit({}, {nullptr, 0, 0, both.memory}, ofl::now_ns() + ofl::kSecond, sequence);
    if (status == OFL_OK) CHECK(both.one.client->cancel(sequence) == OFL_QUARANTINED);
    return status;
  };
  for (int call = 0; call < 8; ++call) CHECK(submit() == OFL_OK);
  CHECK(submit() == OFL_LIMIT);
  both.one.wire->acknowledge();
  CHECK(submit() == OFL_OK);
}

TEST(a_connection_that_ends_gives_all_its_ranges_to_the_others) {
  Shared both;
  std::uint64_t open = 0;
  CHECK(both.one.submit(both.memory, 0, 500, both.sequence) == OFL_OK);
  CHECK(both.one.submit(both.memory, 500, 500, open) == OFL_OK);
  CHECK(both.one.client->cancel(both.sequence) == OFL_QUARANTINED);
  CHECK(both.other.submit(both.memory, 0, 1, both.unused) == OFL_QUARANTINED);
  both.one.client->close();
  CHECK(both.one.client->settled(both.sequence, 0) == OFL_OK);
  CHECK(both.other.submit(both.memory, 0, 1000, both.unused) == OFL_OK);
  both.one.client.reset();  // what it had claimed beside the other's
  CHECK(both.one.client == nullptr && both.other.client->cancel(both.unused) == OFL_QUARANTINED);
}

TEST(a_request_that_was_not_sent_claims_nothing) {
  Shared both;
  std::shared_ptr<Memory> stranger;
  CHECK(Memory::create(nullptr, 1000, false, stranger));
  CHECK(both.one.submit(stranger, 0, 1000, both.sequence) == OFL_INVALID);
  CHECK(stranger->register_with(both.device));
  CHECK(both.other.submit(stranger, 0, 1000, both.sequence) == OFL_OK);
  std::uint64_t sequences[8];
  for (std::size_t call = 0; call < 8; ++call) CHECK(both.one.submit(both.memory, 100 * call, 100, sequences[call]) == OFL_OK);
  CHECK(both.one.submit(both.memory, 900, 100, both.unused) == OFL_LIMIT);
  std::uint64_t last = 0;
  CHECK(both.other.submit(both.memory, 900, 100, last) == OFL_OK);
}
