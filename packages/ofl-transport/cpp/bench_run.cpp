// The end that asks, and holds the watch.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <new>

#include "bench.hpp"
#include "clock.hpp"

namespace ofl::bench {

namespace {

constexpr std::uint32_t kWindowMax = 256;
constexpr std::size_t kWord = sizeof(std::uint64_t);

// One series of transfers, up to `window` of them open at once.  Replies are waited for in the order of the requests.
class Series {
 public:
  Series(ofl_client* client, const Run& run) : client_(client), run_(run) {}

  std::int32_t go(std::int64_t* samples_ns, std::int64_t* elapsed_ns) {
    if (!make_payload()) return OFL_SYSTEM;
    const Nanoseconds begun = now_ns();
    Nanoseconds now = begun;
    for (std::size_t ended = 0; ended < run_.count; ++ended) {
      for (; begun_ < run_.count && begun_ - ended < run_.window; ++begun_) {
        if (const std::int32_t status = begin(now); status != OFL_OK) return give_up(ended, status);
        if (run_.window > 1) now = now_ns();
      }
      if (const std::int32_t status = end(ended); status != OFL_OK) return give_up(ended, status);
      now = now_ns();
      samples_ns[ended] = now - open_[ended % run_.window].begun;
    }
    *elapsed_ns = now - begun;
    return OFL_OK;
  }

 private:
  struct Open {
    std::uint64_t sequence = 0;
    Nanoseconds begun = 0;
    std::uint32_t stamp = 0;
  };

  bool make_payload() noexcept {
    if (run_.mode == OFL_BENCH_TO_CLIENT) return true;
    if (run_.memory != nullptr) {
      std::memset(ofl_buffer_base(run_.memory), 0x5A, run_.bytes * run_.window);
      return true;
    }
    payload_.reset(new (std::nothrow) std::byte[run_.bytes + 1]);
    if (payload_ == nullptr) return false;
    std::memset(payload_.get(), 0x5A, run_.bytes + 1);  // pages that exist before the clock runs
    return true;
  }

  // Of one transfer, in memory that is registered.
  std::byte* range(std::size_t number) const noexcept {
    return static_cast<std::byte*>(ofl_buffer_base(run_.memory)) + number % run_.window * run_.bytes;
  }

  std::int32_t begin(Nanoseconds now) noexcept {
    Open& open = open_[begun_ % run_.window];
    open.begun = now;
    open.stamp = ++stamp_;
    const bool to_client = run_.mode == OFL_BENCH_TO_CLIENT;
    const BenchRequest request{run_.mode, open.stamp, to_client ? run_.bytes : 0};
    const bool registered = run_.memory != nullptr && run_.bytes > 0;
    std::byte* const body = registered ? range(begun_) : payload_.get();
    const std::array<ofl_part, 2> parts{{{&request, sizeof request}, {body, run_.bytes}}};
    const bool payload = !to_client && run_.bytes > 0;
    if (payload) mark(body, run_.bytes, open.stamp);
    ofl_call_options options{};
    if (registered && to_client) {
      const std::size_t seen = std::min(run_.bytes, kWord);
      std::memset(body, 0, seen);  // what an earlier reply left there must not pass for this one
      std::memset(body + run_.bytes - seen, 0, seen);
      options = {run_.memory, begun_ % run_.window * run_.bytes, run_.bytes, nullptr};
    } else if (registered) {
      options.lent = run_.memory;
    }
    std::int32_t status = OFL_INTERRUPTED;
    while (status == OFL_INTERRUPTED)
      status = ofl_client_submit(client_, parts.data(), payload ? 2 : 1, registered ? &options : nullptr,
                                 now + run_.timeout_ns, &open.sequence);
    return status;
  }

  std::int32_t end(std::size_t number) noexcept {
    const Open& open = open_[number % run_.window];
    const void* body = nullptr;
    std::size_t bytes = 0;
    std::int32_t status = OFL_INTERRUPTED;
    while (status == OFL_INTERRUPTED)
      status = ofl_client_wait(client_, open.sequence, open.begun + run_.timeout_ns, &body, &bytes);
    if (status != OFL_OK) return status;
    return right(open, static_cast<const std::byte*>(body), bytes) ? OFL_OK : OFL_UNKNOWN;
  }

  bool right(const Open& open, const std::byte* body, std::size_t bytes) const noexcept {
    if (run_.mode == OFL_BENCH_TO_SERVER) return bytes == 0;
    if (bytes != run_.bytes) return false;
    if (run_.mode == OFL_BENCH_ECHO) return marked(body, bytes, open.stamp);
    return is_text(body, bytes, shift_of(open.stamp));
  }

  std::int32_t give_up(std::size_t ended, std::int32_t status) noexcept {
    for (std::size_t number = ended; number < begun_; ++number)
      ofl_client_cancel(client_, open_[number % run_.window].sequence);
    return status;
  }

  ofl_client* const client_;
  const Run run_;
  std::unique_ptr<std::byte[]> payload_;
  std::array<Open, kWindowMax> open_{};
  std::size_t begun_ = 0;
  std::uint32_t stamp_ = 0;
};

}  // namespace

std::int32_t run(ofl_client* client, const Run& run, std::int64_t* samples_ns, std::int64_t* elapsed_ns) {
  if (run.mode < OFL_BENCH_ECHO || run.mode > OFL_BENCH_TO_CLIENT || run.count == 0) return OFL_INVALID;
  if (run.window == 0 || run.window > kWindowMax) return OFL_INVALID;
  if (run.mode == OFL_BENCH_ECHO && run.window != 1) return OFL_INVALID;
  if (run.memory != nullptr && run.mode == OFL_BENCH_ECHO) return OFL_INVALID;
  return Series(client, run).go(samples_ns, elapsed_ns);
}

}  // namespace ofl::bench
