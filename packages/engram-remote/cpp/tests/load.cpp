// Opens a libengram.so as an interpreter does, and uses nothing of it but the C ABI.
//
//     engram_load LIBRARY NAME...
//
// Every NAME must be there with its version.  Then a server and a client of the library exchange rows over TCP and shared
// memory, and each row is compared.  OFL_LIBRARY: path of libofl.so.  Exit status 0 if all of it held; else 1 and a sentence.  It
// shares no object file with the library: what is tested is the file.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include "engram.h"
#include "ofl.h"
#include "shard_files.hpp"

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::uint32_t kRows = 3000, kLookup = 512;

void* g_library = nullptr;
char g_text[512] = "";

template <typename Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(::dlvsym(g_library, name, "ENGRAM_1"));
}

#define ENGRAM(name) function<decltype(name)>(#name)

int fail(const char* what, const char* text) {
  std::printf("%s: %s\n", what, text);
  return 1;
}

// What server and client both have: a shard on disk, and its rows in memory.
struct Tables {
  Tables() : spec(shard_files::spec_of(folder.file("shard"), kRows)) {
    shard_files::write_shard(spec);
    rows.resize(kRows * (spec.columns + spec.scales));
    for (std::uint64_t id = spec.row_start; id < spec.row_end; ++id)
      for (std::uint32_t at = 0; at < spec.columns + spec.scales; ++at)
        rows[(id - spec.row_start) * (spec.columns + spec.scales) + at] = shard_files::row_byte(1, id, at);
  }
  shard_files::Folder folder;
  engram::ShardSpec spec;
  std::vector<std::uint8_t> rows;
};

int look(engram_client* client, const Tables& tables) {
  const std::uint32_t count = kLookup;
  const std::size_t bytes = ENGRAM(engram_staging_bytes)(&count, 1, tables.spec.columns, tables.spec.scales);
  std::vector<std::byte> memory(bytes + 64, std::byte{0xA5});
  std::byte* const base = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
  std::uint32_t staging = 0;
  if (ENGRAM(engram_client_add_staging)(client, base, bytes, &staging, g_text, sizeof g_text) != ENGRAM_OK)
    return fail("engram_client_add_staging", g_text);
  const std::vector<std::int32_t> ids = shard_files::random_ids(tables.spec, kLookup);
  const engram_batch batch{ids.data(), kLookup, 0};
  std::uint64_t ticket = 0;
  if (ENGRAM(engram_client_enqueue)(client, &batch, 1, staging, &ticket, g_text, sizeof g_text) != ENGRAM_OK)
    return fail("engram_client_enqueue", g_text);
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  engram_result result{};
  const std::int64_t deadline = (now.tv_sec + 60) * kSecond;
  const int status = ENGRAM(engram_client_wait)(client, ticket, deadline, &result, g_text, sizeof g_text);
  int failed = 0;
  if (status != ENGRAM_OK)
    failed = fail("engram_client_wait", g_text);
  else if (result.outcome != ENGRAM_REMOTE)
    failed = fail("the rows are local", ENGRAM(engram_reason_name)(result.reason));
  else if (shard_files::wrong_rows(tables.spec, ids, {base + 64, base + 64 + kLookup * tables.spec.columns}) != 0)
    failed = fail("the rows", "are not the table's");
  ENGRAM(engram_client_free)(client);  // before its staging goes
  return failed;
}

int connect_and_look(const Tables& tables, std::uint16_t transport, const char* host, std::uint16_t port) {
  engram_layer layer{tables.spec.path.c_str(), tables.spec.row_start, tables.spec.row_end, tables.spec.layer, 0, {}};
  std::copy(tables.spec.source_sha256.begin(), tables.spec.source_sha256.end(), layer.source_sha256);
  engram_client_options options{};
  options.host = host;
  options.port = port;
  options.transport = transport;
  options.layers = &layer;
  options.layer_count = 1;
  options.rank = tables.spec.rank;
  options.ranks = tables.spec.ranks;
  options.columns = tables.spec.columns;
  options.scales = tables.spec.scales;
  options.batch_rows_max = kLookup;
  options.flags = ENGRAM_REQUIRED;
  options.read_threads = 1;
  options.timeout_ns = options.connect_timeout_ns = options.loss_ns = 30 * kSecond;
  options.retry_ns = options.retry_max_ns = kSecond;
  options.heartbeat_ns = kSecond / 10;
  engram_client* client = nullptr;
  if (ENGRAM(engram_client_create)(&options, &client, g_text, sizeof g_text) != ENGRAM_OK)
    return fail("engram_client_create", g_text);
  return look(client, tables);
}

int serve_and_look(const Tables& tables, std::uint16_t transport, const char* host) {
  engram_server_options options{};
  options.columns = tables.spec.columns;
  options.scales = tables.spec.scales;
  options.gather_threads = 1;
  options.connections_max = options.calls_max = options.reply_buffers = 4;
  options.batch_rows_max = kLookup;
  engram_server* server = nullptr;
  if (ENGRAM(engram_server_create)(&options, &server, g_text, sizeof g_text) != ENGRAM_OK)
    return fail("engram_server_create", g_text);
  const engram_table table{tables.rows.data(), tables.spec.row_start, tables.spec.row_end, tables.spec.layer,
                           tables.spec.rank,   tables.spec.ranks,     0};
  if (ENGRAM(engram_server_add_table)(server, &table, g_text, sizeof g_text) != ENGRAM_OK)
    return fail("engram_server_add_table", g_text);
  std::uint16_t port = 0;
  if (ENGRAM(engram_server_listen)(server, transport, host, 0, &port, g_text, sizeof g_text) != ENGRAM_OK)
    return fail("engram_server_listen", g_text);
  if (ENGRAM(engram_server_prepare)(server, g_text, sizeof g_text) != ENGRAM_OK)
    return fail("engram_server_prepare", g_text);
  int ran = ENGRAM_UNKNOWN;
  char said[512] = "";
  std::thread serving([&] { ran = ENGRAM(engram_server_run)(server, said, sizeof said); });
  const int failed = connect_and_look(tables, transport, host, port);
  ENGRAM(engram_server_stop)(server);
  serving.join();
  ENGRAM(engram_server_free)(server);
  return failed == 0 && ran != ENGRAM_OK ? fail("engram_server_run", said) : failed;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return fail("usage", "engram_load LIBRARY NAME...");
  g_library = ::dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (g_library == nullptr) return fail("dlopen", ::dlerror());
  for (int i = 2; i < count; ++i)
    if (::dlvsym(g_library, words[i], "ENGRAM_1") == nullptr) return fail(words[i], "is not there");
  if (ENGRAM(engram_abi_version)() != ENGRAM_ABI_VERSION) return fail("engram_abi_version", "is not the header's");
  const char* const libofl = std::getenv("OFL_LIBRARY");
  if (libofl == nullptr) return fail("OFL_LIBRARY", "is not set");
  if (ENGRAM(engram_library_open)(libofl, g_text, sizeof g_text) != ENGRAM_OK) return fail("engram_library_open", g_text);
  for (const char* const feature : {"io_uring", "checksum", "huge_pages", "numa"}) {
    const bool there = ENGRAM(engram_feature)(feature, g_text, sizeof g_text) == ENGRAM_OK;
    std::printf("%s: %s %s\n", feature, there ? "yes" : "no", g_text);
  }
  const Tables tables;
  const std::string name = "engram-load-" + std::to_string(::getpid());
  const int failed = serve_and_look(tables, OFL_TCP, "127.0.0.1");
  return failed != 0 ? failed : serve_and_look(tables, OFL_SHM, name.c_str());
}
