// Clients, servers and buffers of the C ABI for tests, each of which ends with its scope.  Every wait has a deadline.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <unistd.h>

#include "check.hpp"
#include "clock.hpp"
#include "ofl.h"

namespace sessions {

using ofl::kSecond;
using ofl::now_ns;

inline constexpr std::uint32_t kFrameBytesMax = 1U << 24;

// A deadline that a healthy test never meets, also under a sanitizer on a busy machine.
inline std::int64_t soon() { return now_ns() + 20 * kSecond; }

inline std::string pattern(std::size_t bytes, unsigned seed) {
  std::string text(bytes, '\0');
  for (std::size_t i = 0; i < bytes; ++i) text[i] = static_cast<char>('a' + (i * 31 + seed) % 23);
  return text;
}

struct Body {
  std::uint64_t connection = 0;
  std::uint64_t sequence = 0;
  std::uint64_t reply_bytes_max = 0;
  std::string bytes;
};

class Server {
 public:
  static ofl_server_options defaults(const char* key_file = nullptr) {
    ofl_server_options options{};
    options.service = "echo";
    options.key_file = key_file;
    options.version_min = options.version_max = 1;
    options.frame_bytes_max = kFrameBytesMax;
    options.connections_max = options.pending_max = 64;
    options.calls_max = 256;
    options.handshake_ns = options.frame_ns = 10 * kSecond;
    options.queue_bytes_max = 1U << 26;
    return options;
  }

  explicit Server(std::uint16_t wire, const char* key_file = nullptr) : Server(wire, defaults(key_file)) {}
  Server(std::uint16_t wire, const ofl_server_options& options) : wire_(wire) {
    char text[512] = "";
    CHECK(ofl_server_create(&options, &handle_, text, sizeof text) == OFL_OK);
    static std::atomic<int> number{0};
    host_ = wire == OFL_SHM ? "test-" + std::to_string(::getpid()) + "-" + std::to_string(++number) : "127.0.0.1";
    const int status = ofl_server_listen(handle_, wire, host_.c_str(), 0, &port_, text, sizeof text);
    if (status != OFL_OK) std::printf("listen: %s\n", text);
    CHECK(status == OFL_OK);
  }
  ~Server() {
    ofl_server_close(handle_);
    ofl_server_free(handle_);
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  ofl_server* get() const { return handle_; }

  // What a client says that fits this server.
  ofl_client_options offer(const char* key_file = nullptr) const {
    ofl_client_options options{};
    options.host = host_.c_str();
    options.service = "echo";
    options.key_file = key_file;
    options.port = port_;
    options.version_min = options.version_max = 1;
    options.transport = wire_;
    options.frame_bytes_max = kFrameBytesMax;
    options.heartbeat_ns = kSecond / 50;
    options.loss_ns = 10 * kSecond;
    return options;
  }

  static int connect(ofl_client** client, const ofl_client_options& options, std::string* said = nullptr) {
    ofl_peer peer;
    char text[512] = "";
    int status = OFL_INTERRUPTED;
    const std::int64_t deadline = soon();
    while (status == OFL_INTERRUPTED) status = ofl_client_connect(&options, deadline, client, &peer, text, sizeof text);
    if (said != nullptr) *said = text;
    return status;
  }

  // The next request; other events are passed over.
  Body take() const {
    ofl_event event;
    const std::int64_t deadline = soon();
    for (;;) {
      const int status = ofl_server_next(handle_, deadline, &event);
      if (status == OFL_INTERRUPTED || (status == OFL_OK && event.kind != OFL_EVENT_REQUEST)) continue;
      CHECK(status == OFL_OK);
      if (status != OFL_OK) return {};
      Body body{event.connection, event.sequence, event.reply_bytes_max, {}};
      body.bytes.assign(static_cast<const char*>(event.body), event.body_bytes);
      if (event.capacity > 0) ofl_body_free(event.body);
      return body;
    }
  }

  int reply(const Body& request, std::string_view bytes, ofl_buffer* lent = nullptr) const {
    const ofl_part part{bytes.data(), bytes.size()};
    return ofl_server_reply(handle_, request.connection, request.sequence, &part, 1, lent);
  }

  std::uint64_t counter(const char* name) const {
    std::uint64_t values[OFL_COUNTERS];
    ofl_server_counters(handle_, values);
    for (std::uint32_t index = 0; index < OFL_COUNTERS; ++index)
      if (std::strcmp(ofl_counter_name(index), name) == 0) return values[index];
    CHECK(!"there is no such counter");
    return 0;
  }

  template <typename Holds>
  static bool eventually(Holds holds) {
    for (const std::int64_t deadline = soon(); !holds(); std::this_thread::yield())
      if (now_ns() > deadline) return false;
    return true;
  }

 private:
  const std::uint16_t wire_;
  ofl_server* handle_ = nullptr;
  std::string host_;
  std::uint16_t port_ = 0;
};

// Answers every request with its own bytes, on a thread.
class Echo : public Server {
 public:
  explicit Echo(std::uint16_t wire, const char* key_file = nullptr) : Server(wire, key_file), thread_([this] { serve(); }) {}
  ~Echo() {
    ofl_server_close(get());
    thread_.join();
  }

 private:
  void serve() const {
    ofl_event event;
    for (;;) {
      const int status = ofl_server_next(get(), soon(), &event);
      if (status == OFL_CLOSED) return;
      if (status != OFL_OK || event.kind != OFL_EVENT_REQUEST) continue;
      const ofl_part part{event.body, event.body_bytes};
      ofl_server_reply(get(), event.connection, event.sequence, &part, 1, nullptr);
      if (event.capacity > 0) ofl_body_free(event.body);
    }
  }

  std::thread thread_;
};

class Buffer {
 public:
  explicit Buffer(std::size_t bytes, std::uint32_t flags = 0, void* base = nullptr) {
    char text[512] = "";
    CHECK(ofl_buffer_create(base, bytes, flags, &handle_, text, sizeof text) == OFL_OK);
  }
  ~Buffer() { free(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  ofl_buffer* get() const { return handle_; }
  char* base() const { return static_cast<char*>(ofl_buffer_base(handle_)); }
  void free() {
    if (handle_ != nullptr) ofl_buffer_free(std::exchange(handle_, nullptr));
  }

 private:
  ofl_buffer* handle_ = nullptr;
};

class Client {
 public:
  explicit Client(const Server& server, const char* key_file = nullptr) : Client(server.offer(key_file)) {}
  explicit Client(const ofl_client_options& options) {
    std::string said;
    const int status = Server::connect(&handle_, options, &said);
    if (status == OFL_OK) return;
    std::printf("connect: %s\n", said.c_str());
    std::abort();  // without a connection there is nothing to test
  }
  ~Client() { ofl_client_free(handle_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  ofl_client* get() const { return handle_; }

  void adopt(const Buffer& buffer) const {
    char text[512] = "";
    CHECK(ofl_client_register(handle_, buffer.get(), text, sizeof text) == OFL_OK);
  }

  int try_submit(std::string_view bytes, const ofl_call_options* options, std::uint64_t* sequence) const {
    const std::size_t half = bytes.size() / 2;
    const ofl_part parts[] = {{bytes.data(), half}, {bytes.data() + half, bytes.size() - half}};
    int status = OFL_INTERRUPTED;
    const std::int64_t deadline = soon();
    while (status == OFL_INTERRUPTED) status = ofl_client_submit(handle_, parts, 2, options, deadline, sequence);
    return status;
  }

  std::uint64_t submit(std::string_view bytes) const {
    std::uint64_t sequence = 0;
    CHECK(try_submit(bytes, nullptr, &sequence) == OFL_OK);
    return sequence;
  }

  std::uint64_t submit_into(std::string_view bytes, const Buffer& into, std::size_t offset, std::size_t room) const {
    const ofl_call_options options{into.get(), offset, room, nullptr};
    std::uint64_t sequence = 0;
    CHECK(try_submit(bytes, &options, &sequence) == OFL_OK);
    return sequence;
  }

  int wait(std::uint64_t sequence, std::string& reply, std::int64_t deadline = soon()) const {
    const void* body = nullptr;
    std::size_t bytes = 0;
    int status = OFL_INTERRUPTED;
    while (status == OFL_INTERRUPTED) status = ofl_client_wait(handle_, sequence, deadline, &body, &bytes);
    if (status == OFL_OK) reply.assign(static_cast<const char*>(body), bytes);
    return status;
  }

 private:
  ofl_client* handle_ = nullptr;
};

// False, and the case has failed, where the library lacks the wire.
inline bool has(const char* wire) {
  char text[512] = "";
  const bool there = ofl_feature(wire, text, sizeof text) == OFL_OK;
  if (!there) std::printf("%s: %s\n", wire, text);
  CHECK(there);
  return there;
}

}  // namespace sessions

// One case for every wire that any host has; `wire` names it inside.
#define ON_EACH_WIRE(name)                 \
  static void name(std::uint16_t wire);    \
  TEST(name##_over_tcp) { name(OFL_TCP); } \
  TEST(name##_over_shm) {                  \
    if (sessions::has("shm")) name(OFL_SHM);         \
  }                                        \
  static void name(std::uint16_t wire)
