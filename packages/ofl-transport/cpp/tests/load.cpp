// Opens a libofl.so as an interpreter does, and uses nothing of it but the C ABI.
//
//     ofl_load LIBRARY NAME...
//
// Every NAME must be there with its version.  Then a client and a server of the library talk over TCP and shared memory.  Exit status
// 0 if all of it held; else 1 and a sentence.  It shares no object file with the library: what is tested is the file.

#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include <dlfcn.h>
#include <time.h>
#include <unistd.h>

#include "ofl.h"

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

std::int64_t soon() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kSecond + now.tv_nsec + 10 * kSecond;
}

void* g_library = nullptr;

template <typename Function>
Function* function(const char* name) {
  return reinterpret_cast<Function*>(::dlvsym(g_library, name, "OFL_1"));
}

#define OFL(name) function<decltype(name)>(#name)

int fail(const char* what, const char* text) {
  std::printf("%s: %s\n", what, text);
  return 1;
}

// Answers one request.
int serve(ofl_server* server) {
  ofl_event event;
  event.kind = 0;
  while (event.kind != OFL_EVENT_REQUEST) {
    const int status = OFL(ofl_server_next)(server, soon(), &event);
    if (status != OFL_OK && status != OFL_INTERRUPTED) return status;
  }
  const ofl_part part{event.body, event.body_bytes};
  const int status = OFL(ofl_server_reply)(server, event.connection, event.sequence, &part, 1, nullptr);
  if (event.capacity > 0) OFL(ofl_body_free)(event.body);
  return status;
}

// One call there and back.
int call(ofl_client* client) {
  const ofl_part part{"there and back", 14};
  std::uint64_t sequence = 0;
  if (OFL(ofl_client_submit)(client, &part, 1, nullptr, soon(), &sequence) != OFL_OK) return OFL_LOST;
  const std::int64_t deadline = soon();
  const void* body = nullptr;
  std::size_t bytes = 0;
  int status = OFL_INTERRUPTED;
  while (status == OFL_INTERRUPTED) status = OFL(ofl_client_wait)(client, sequence, deadline, &body, &bytes);
  if (status != OFL_OK) return status;
  return bytes == 14 && std::memcmp(body, "there and back", 14) == 0 ? OFL_OK : OFL_INVALID;
}

int connect_and_call(std::uint16_t transport, const char* host, std::uint16_t port) {
  char text[512] = "";
  ofl_client_options options{};
  options.host = host;
  options.service = "load";
  options.port = port;
  options.version_min = options.version_max = 1;
  options.transport = transport;
  options.frame_bytes_max = 1U << 16;
  options.heartbeat_ns = kSecond / 10;
  options.loss_ns = 2 * kSecond;
  ofl_client* client = nullptr;
  ofl_peer peer;
  if (OFL(ofl_client_connect)(&options, soon(), &client, &peer, text, sizeof text) != OFL_OK)
    return fail("ofl_client_connect", text);
  const int status = call(client);
  OFL(ofl_client_free)(client);
  return status == OFL_OK ? 0 : fail("the call did not come back over", peer.wire);
}

int serve_and_call(std::uint16_t transport, const char* host) {
  char text[512] = "";
  ofl_server_options options{};
  options.service = "load";
  options.version_min = options.version_max = 1;
  options.frame_bytes_max = 1U << 16;
  options.connections_max = options.pending_max = 4;
  options.calls_max = 4;
  options.handshake_ns = options.frame_ns = 5 * kSecond;
  options.queue_bytes_max = 1U << 20;
  ofl_server* server = nullptr;
  std::uint16_t port = 0;
  if (OFL(ofl_server_create)(&options, &server, text, sizeof text) != OFL_OK) return fail("ofl_server_create", text);
  if (OFL(ofl_server_listen)(server, transport, host, 0, &port, text, sizeof text) != OFL_OK)
    return fail("ofl_server_listen", text);
  int served = OFL_UNKNOWN;
  std::thread serving([&] { served = serve(server); });  // a client connects while somebody is in ofl_server_next
  const int failed = connect_and_call(transport, host, port);
  OFL(ofl_server_close)(server);
  serving.join();
  OFL(ofl_server_free)(server);
  return failed == 0 && served != OFL_OK ? fail("ofl_server_reply", "did not take the reply") : failed;
}

}  // namespace

int main(int count, char** words) {
  if (count < 2) return fail("usage", "ofl_load LIBRARY NAME...");
  g_library = ::dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (g_library == nullptr) return fail("dlopen", ::dlerror());
  for (int i = 2; i < count; ++i)
    if (::dlvsym(g_library, words[i], "OFL_1") == nullptr) return fail(words[i], "is not there");
  if (OFL(ofl_abi_version)() != OFL_ABI_VERSION) return fail("ofl_abi_version", "is not the header's");
  const std::string name = "load-" + std::to_string(::getpid());
  const int failed = serve_and_call(OFL_TCP, "127.0.0.1");
  return failed != 0 ? failed : serve_and_call(OFL_SHM, name.c_str());
}
