// The C ABI of the measuring loops.  Translates and guards; decides nothing.

#include "abi.hpp"
#include "bench.hpp"

using ofl::guarded;

std::int32_t ofl_bench_serve(ofl_server* server) noexcept {
  return guarded([&] { return ofl::bench::serve(server); });
}

std::int32_t ofl_bench_run(ofl_client* client, std::uint32_t mode, std::size_t bytes, std::size_t count,
                           std::uint32_t window, ofl_buffer* memory, std::int64_t timeout_ns, std::int64_t* samples_ns,
                           std::int64_t* elapsed_ns) noexcept {
  return guarded([&] {
    const ofl::bench::Run run{mode, bytes, count, window, memory, ofl::span_of(timeout_ns)};
    return ofl::bench::run(client, run, samples_ns, elapsed_ns);
  });
}
