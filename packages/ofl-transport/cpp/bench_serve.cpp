// The end that answers.

#include <algorithm>
#include <bit>
#include <cstring>

#include <time.h>

#include "bench.hpp"
#include "clock.hpp"

namespace ofl::bench {

namespace {

constexpr Nanoseconds kIdle = 60 * kSecond;

std::uint64_t cpu_time() noexcept {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<std::uint64_t>(time.tv_sec) * kSecond + static_cast<std::uint64_t>(time.tv_nsec);
}

// The server's lent memory: grows with what is asked for.
class Source {
 public:
  explicit Source(ofl_server* server) : server_(server) {}
  ~Source() { drop(); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  // nullptr: there is no memory for it, or the device refuses it.
  const std::byte* text(std::size_t bytes, std::size_t shift) {
    const std::size_t needed = bytes + kShifts * kShiftBytes;
    if (needed > size_ && !grow(std::bit_ceil(std::max(needed, kSizeMin)))) return nullptr;
    return static_cast<const std::byte*>(ofl_buffer_base(buffer_)) + shift;
  }
  ofl_buffer* buffer() const noexcept { return buffer_; }

 private:
  static constexpr std::size_t kSizeMin = 1U << 20;

  bool grow(std::size_t size) {
    drop();
    if (ofl_buffer_create(nullptr, size, 0, &buffer_, nullptr, 0) != OFL_OK) return false;
    if (ofl_server_register(server_, buffer_, nullptr, 0) != OFL_OK) {
      drop();
      return false;
    }
    write_text(static_cast<std::byte*>(ofl_buffer_base(buffer_)), size);
    size_ = size;
    return true;
  }

  // Replies that are still under way keep what they need: a client that does not read one holds nobody up.
  void drop() noexcept {
    if (buffer_ == nullptr) return;
    ofl_buffer_free(buffer_);
    buffer_ = nullptr;
    size_ = 0;
  }

  ofl_server* const server_;
  ofl_buffer* buffer_ = nullptr;
  std::size_t size_ = 0;
};

// nullptr: answered.  Otherwise what was wrong with the request, as a clause.
const char* answer(ofl_server* server, Source& source, const ofl_event& event) {
  BenchRequest request;
  if (event.body_bytes < sizeof request) return "a request is shorter than its header";
  std::memcpy(&request, event.body, sizeof request);
  const std::byte* payload = static_cast<const std::byte*>(event.body) + sizeof request;
  const std::size_t bytes = event.body_bytes - sizeof request;
  ofl_part part{nullptr, 0};
  ofl_buffer* lent = nullptr;
  std::uint64_t cpu = 0;
  switch (request.mode) {
    case OFL_BENCH_ECHO:
      part = {payload, bytes};
      break;
    case OFL_BENCH_TO_SERVER:
      if (!marked(payload, bytes, request.stamp)) return "the ends of a request's body are not what was sent";
      break;
    case OFL_BENCH_TO_CLIENT:
      if (request.reply_bytes > event.reply_bytes_max) return "reply_bytes is over the limit";
      part = {source.text(request.reply_bytes, shift_of(request.stamp)), request.reply_bytes};
      if (part.base == nullptr) return "reply_bytes is more than this host has or may register memory for";
      lent = source.buffer();
      break;
    case OFL_BENCH_CPU_TIME:
      cpu = cpu_time();
      part = {&cpu, sizeof cpu};
      break;
    default:
      return "mode of a request is unknown";
  }
  ofl_server_reply(server, event.connection, event.sequence, &part, part.bytes > 0 ? 1 : 0, lent);
  return nullptr;
}

}  // namespace

std::int32_t serve(ofl_server* server) {
  Source source(server);
  ofl_event event{};
  for (Nanoseconds last = now_ns();;) {
    const std::int32_t status = ofl_server_next(server, last + kIdle, &event);
    if (status == OFL_WOKEN || status == OFL_CLOSED) return OFL_OK;
    if (status == OFL_INTERRUPTED || status == OFL_DEADLINE) {
      last = now_ns();
      continue;
    }
    if (status != OFL_OK) return status;
    if (event.kind != OFL_EVENT_REQUEST) continue;
    last = event.received_ns;
    const char* fault = answer(server, source, event);
    if (event.capacity != 0) ofl_body_free(event.body);
    if (fault != nullptr) ofl_server_disconnect(server, event.connection, fault);
  }
}

}  // namespace ofl::bench
