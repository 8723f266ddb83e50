// The client through its C ABI, without a server: local rows, hand-over, and what it refuses.

#include <atomic>
#include <csignal>
#include <memory>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

#include "check.hpp"
#include "clock.hpp"
#include "proxy_handover.hpp"
#include "shard_files.hpp"

using namespace engram;

namespace {

constexpr Nanoseconds kLong = 60 * kSecond;

struct FreeClient {
  void operator()(engram_client* client) const noexcept { engram_client_free(client); }
};
using ClientHandle = std::unique_ptr<engram_client, FreeClient>;

struct Local {
  explicit Local(std::uint32_t scales = 8) : spec(shard_files::spec_of(folder.file("shard"), 3000, 256, scales)) {
    shard_files::write_shard(spec);
    layer = {spec.path.c_str(), spec.row_start, spec.row_end, spec.layer, 0, {}};
    std::copy(spec.source_sha256.begin(), spec.source_sha256.end(), layer.source_sha256);
    options.layers = &layer;
    options.layer_count = 1;
    options.rank = 1;
    options.ranks = 2;
    options.columns = 256;
    options.scales = scales;
    options.batch_rows_max = 4096;
    options.read_threads = 2;
    options.timeout_ns = kSecond;
    options.connect_timeout_ns = kSecond;
    options.retry_ns = kMillisecond;
    options.retry_max_ns = kSecond;
    options.heartbeat_ns = 50 * kMillisecond;
    options.loss_ns = 500 * kMillisecond;
    options.spin_ns = 20 * kMicrosecond;
  }

  std::int32_t create(ClientHandle& client) {
    engram_client* made = nullptr;
    const std::int32_t status = engram_client_create(&options, &made, text, sizeof text);
    client.reset(made);
    return status;
  }

  shard_files::Folder folder;
  ShardSpec spec;
  engram_layer layer{};
  engram_client_options options{};
  char text[512] = "";
};

struct Pinned {
  explicit Pinned(std::size_t bytes)
      : memory(static_cast<std::byte*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64))), size((bytes + 63) / 64 * 64) {
    std::memset(memory, 0xA5, size);
  }
  ~Pinned() { std::free(memory); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;
  std::byte* memory;
  std::size_t size;
};

std::size_t room_for(std::uint32_t rows) { return engram_staging_bytes(&rows, 1, 256, 8); }

// A GPU stream's side of a block.
void stream_round(engram_handover* block, const std::vector<std::int32_t>& ids) {
  block->rows = static_cast<std::uint32_t>(ids.size());
  if (!ids.empty()) std::memcpy(reinterpret_cast<std::byte*>(block) + kHandoverIdsOffset, ids.data(), ids.size() * sizeof ids[0]);
  std::atomic_ref(block->request).store(1, std::memory_order_release);
  std::atomic_ref done(block->done);
  while (done.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  done.store(0, std::memory_order_relaxed);
}

}  // namespace

TEST(a_client_without_a_server_reads_its_shard) {
  Local local;
  ClientHandle client;
  CHECK(local.create(client) == ENGRAM_OK);
  Pinned memory(room_for(512));
  std::uint32_t staging = 99;
  CHECK(engram_client_add_staging(client.get(), memory.memory, memory.size, &staging, local.text, 512) == ENGRAM_OK);
  std::vector<std::int32_t> ids = shard_files::random_ids(local.spec, 512);
  ids[100] = 5;
  const engram_batch batch{ids.data(), 512, 0};
  std::uint64_t ticket = 0;
  CHECK(engram_client_enqueue(client.get(), &batch, 1, staging, &ticket, local.text, 512) == ENGRAM_OK);
  engram_result result{};
  CHECK(engram_client_wait(client.get(), ticket, now_ns() + kLong, &result, local.text, 512) == ENGRAM_OK);
  CHECK(result.outcome == ENGRAM_LOCAL && result.rows == 512 && result.out_of_shard == 1);
  CHECK(std::string(engram_reason_name(result.reason)) == "no_server");
  const Planes planes{memory.memory + 64, memory.memory + 64 + 512 * 256};
  CHECK(shard_files::wrong_rows(local.spec, ids, planes) == 0);
}

TEST(what_cannot_be_served_is_refused_by_name_before_anything_is_done) {
  Local local;
  ClientHandle client;
  CHECK(local.create(client) == ENGRAM_OK);
  Pinned memory(room_for(4096));
  std::uint32_t staging = 0;
  const auto refused = [&](std::int32_t status, const char* word) {
    CHECK(status == ENGRAM_INVALID);
    CHECK(std::string(local.text).find(word) != std::string::npos);
  };
  refused(engram_client_add_staging(client.get(), memory.memory + 1, 4096, &staging, local.text, 512), "base");
  refused(engram_client_add_staging(client.get(), memory.memory, 100, &staging, local.text, 512), "bytes");
  CHECK(engram_client_add_staging(client.get(), memory.memory, memory.size, &staging, local.text, 512) == ENGRAM_OK);
  const std::vector<std::int32_t> ids(5000, 1000);
  std::uint64_t ticket = 0;
  const auto enqueue = [&](std::vector<engram_batch> batches, std::uint32_t where) {
    return engram_client_enqueue(client.get(), batches.data(), static_cast<std::uint32_t>(batches.size()), where, &ticket,
                                 local.text, 512);
  };
  refused(enqueue({{ids.data(), 4097, 0}}, staging), "batch_rows_max");
  refused(enqueue({{ids.data(), 1, 1}}, staging), "batches[0].layer");
  refused(enqueue({}, staging), "batches");
  refused(enqueue({{ids.data(), 1, 0}, {ids.data(), 1, 0}}, staging), "batches");
  refused(enqueue({{nullptr, 1, 0}}, staging), "batches[0].ids");
  refused(enqueue({{ids.data(), 1, 0}}, 7), "staging 7");
}

TEST(options_that_cannot_be_are_refused_by_name) {
  const auto refused = [](const char* word, auto change) {
    Local local;
    change(local);
    ClientHandle client;
    CHECK(local.create(client) == ENGRAM_INVALID);
    CHECK(std::string(local.text).find(word) != std::string::npos);
  };
  refused("layer_count", [](Local& l) { l.options.layer_count = 0; });
  refused("rank", [](Local& l) { l.options.rank = 2; });
  refused("columns", [](Local& l) { l.options.columns = 0; });
  refused("batch_rows_max", [](Local& l) { l.options.batch_rows_max = 0; });
  refused("timeout_ns", [](Local& l) { l.options.timeout_ns = 0; });
  refused("retry_max_ns", [](Local& l) { l.options.retry_max_ns = l.options.retry_ns - 1; });
  refused("loss_ns", [](Local& l) { l.options.loss_ns = l.options.heartbeat_ns; });
  refused("flags", [](Local& l) { l.options.flags = 1U << 20U; });
  refused("host", [](Local& l) { l.options.flags = ENGRAM_REQUIRED; });
  refused("layers[0]", [](Local& l) { l.layer.row_end = l.layer.row_start; });
  refused("transport", [](Local& l) { l.options.host = "127.0.0.1"; });
}

TEST(a_hundred_thousand_rounds_of_a_rearmed_block_give_exact_rows) {
  Local local;
  ClientHandle client;
  local.options.flags = ENGRAM_BUFFERED | ENGRAM_PREAD;
  CHECK(local.create(client) == ENGRAM_OK);
  Pinned first(kHandoverIdsOffset + 64 * 4), second(kHandoverIdsOffset + 64 * 4);
  Pinned rows[] = {Pinned(room_for(64)), Pinned(room_for(64))};
  engram_handover* blocks[] = {reinterpret_cast<engram_handover*>(first.memory),
                               reinterpret_cast<engram_handover*>(second.memory)};
  for (int i = 0; i < 2; ++i) {
    std::memset(blocks[i], 0, sizeof *blocks[i]);
    std::uint32_t staging = 0;
    CHECK(engram_client_add_staging(client.get(), rows[i].memory, rows[i].size, &staging, local.text, 512) == ENGRAM_OK);
    CHECK(engram_client_attach(client.get(), blocks[i], 64, 0, staging, local.text, 512) == ENGRAM_OK);
  }
  std::size_t wrong = 0;
  for (std::uint32_t round = 0; round < 100'000; ++round) {
    const std::uint32_t count = round % 5;
    std::vector<std::int32_t> ids(count);
    for (std::uint32_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(990 + (round * 7 + i * 911) % 3020);
    Pinned& staging = rows[round % 2];
    std::memset(staging.memory, 0xA5, staging.size);
    stream_round(blocks[round % 2], ids);
    const Planes planes{staging.memory + 64, staging.memory + 64 + wire::plane_bytes(count, 256)};
    wrong += shard_files::wrong_rows(local.spec, ids, planes);
  }
  CHECK(wrong == 0);
  std::uint64_t counters[ENGRAM_CLIENT_COUNTERS];
  engram_client_counters(client.get(), counters);
  CHECK(counters[static_cast<std::size_t>(Counter::handovers)] == 100'000);
  client.reset();  // before the blocks that its proxy looks at
}

// The block lies where the row's scales land, so that every answer is the next request: a stream that never stops asking.
TEST(closing_ends_though_a_stream_never_stops_asking) {
  Local local(4);
  ClientHandle client;
  CHECK(local.create(client) == ENGRAM_OK);
  Pinned memory(4096);
  std::uint32_t staging = 0;
  CHECK(engram_client_add_staging(client.get(), memory.memory, 1024, &staging, local.text, 512) == ENGRAM_OK);
  auto* const block = reinterpret_cast<engram_handover*>(memory.memory + wire::kHeadBytes + 256);
  std::memset(block, 0, sizeof *block);
  const std::int32_t id = 1000;
  std::memcpy(reinterpret_cast<std::byte*>(block) + kHandoverIdsOffset, &id, sizeof id);
  block->rows = 1;
  block->request = 1;
  CHECK(engram_client_attach(client.get(), block, 1, 0, staging, local.text, 512) == ENGRAM_OK);
  std::uint64_t counters[ENGRAM_CLIENT_COUNTERS] = {};
  while (counters[static_cast<std::size_t>(Counter::handovers)] < 10) engram_client_counters(client.get(), counters);
  std::atomic<bool> closed{false};
  std::thread closer([&] {
    engram_client_close(client.get());
    closed = true;
  });
  const Nanoseconds until = now_ns() + 10 * kSecond;
  while (!closed && now_ns() < until) std::this_thread::yield();
  CHECK(closed);
  std::atomic_ref(block->rows).store(0);  // without rows nothing asks again
  closer.join();
}

TEST(a_staging_whose_block_was_refused_serves_tickets) {
  Local local;
  ClientHandle client;
  CHECK(local.create(client) == ENGRAM_OK);
  Pinned words(kHandoverIdsOffset + 4), memory(2048);
  std::memset(words.memory, 0, words.size);
  auto* const block = reinterpret_cast<engram_handover*>(words.memory);
  std::uint32_t stagings[2] = {};
  for (int i = 0; i < 2; ++i)
    CHECK(engram_client_add_staging(client.get(), memory.memory + i * 1024, 1024, &stagings[i], local.text, 512) == ENGRAM_OK);
  CHECK(engram_client_attach(client.get(), block, 1, 0, stagings[0], local.text, 512) == ENGRAM_OK);
  CHECK(engram_client_attach(client.get(), block, 1, 0, stagings[1], local.text, 512) == ENGRAM_INVALID);
  const std::int32_t id = 1000;
  const engram_batch batch{&id, 1, 0};
  std::uint64_t ticket = 0;
  CHECK(engram_client_enqueue(client.get(), &batch, 1, stagings[1], &ticket, local.text, 512) == ENGRAM_OK);
  client.reset();
}

TEST(a_hand_over_that_nobody_can_serve_says_so_and_ends_the_process) {
  int ends[2];
  CHECK(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(ends[1], 2);
    Local local;
    ClientHandle client;
    if (local.create(client) != ENGRAM_OK) ::_exit(1);
    Pinned block(kHandoverIdsOffset + 4);
    Pinned rows(room_for(1));
    auto* const words = reinterpret_cast<engram_handover*>(block.memory);
    std::memset(words, 0, sizeof *words);
    std::uint32_t staging = 0;
    engram_client_add_staging(client.get(), rows.memory, rows.size, &staging, local.text, 512);
    engram_client_attach(client.get(), words, 1, 0, staging, local.text, 512);
    if (::truncate(local.spec.path.c_str(), 5000) != 0) ::_exit(1);
    stream_round(words, {1000});
    ::_exit(0);  // not reached: the round never ends
  }
  ::close(ends[1]);
  std::string said(1024, '\0');
  const ssize_t got = ::read(ends[0], said.data(), said.size());
  said.resize(got > 0 ? static_cast<std::size_t>(got) : 0);
  ::close(ends[0]);
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
  CHECK(said.find("engram: layer 0 of a hand-over") == 0 && said.find("/shard: size: ") != std::string::npos);
}

TEST(a_child_of_fork_may_only_free) {
  Local local;
  ClientHandle client;
  CHECK(local.create(client) == ENGRAM_OK);
  const pid_t child = ::fork();
  if (child == 0) {
    std::uint32_t staging = 0;
    const bool refused = engram_client_add_staging(client.get(), &local, 4096, &staging, local.text, 512) == ENGRAM_CLOSED &&
                         engram_client_connected(client.get(), local.text, 512) == 0;
    client.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  CHECK(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// A lookup that was taken while the client was being closed ended locally, or was never taken: nobody waits for ever.
TEST(every_lookup_that_a_closing_client_takes_ends) {
  constexpr std::uint32_t kCallers = 16;
  for (int round = 0; round < 100; ++round) {
    Local local;
    ClientHandle client;
    CHECK(local.create(client) == ENGRAM_OK);
    std::atomic<std::uint32_t> begun{0};
    std::atomic<std::uint32_t> left{0};
    std::vector<std::thread> callers;
    for (std::uint32_t i = 0; i < kCallers; ++i)
      callers.emplace_back([&] {
        Pinned memory(room_for(0));
        std::uint32_t staging = 0;
        char text[512];
        if (engram_client_add_staging(client.get(), memory.memory, memory.size, &staging, text, sizeof text) != ENGRAM_OK) return;
        begun.fetch_add(1);
        const engram_batch batch{nullptr, 0, 0};
        std::uint64_t ticket = 0;
        engram_result result{};
        while (engram_client_enqueue(client.get(), &batch, 1, staging, &ticket, text, sizeof text) == ENGRAM_OK)
          if (engram_client_wait(client.get(), ticket, now_ns() + 2 * kSecond, &result, text, sizeof text) != ENGRAM_OK) {
            left.fetch_add(1);
            return;
          }
      });
    while (begun.load() < kCallers) relax();
    engram_client_close(client.get());
    for (std::thread& caller : callers) caller.join();
    CHECK(left.load() == 0);
    if (left.load() != 0) return;
  }
}
