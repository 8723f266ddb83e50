// Whole sessions through the C ABI, without an interpreter: leaks and races have nowhere to hide.

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "clock.hpp"
#include "ofl.h"

namespace {

using ofl::kSecond;
using ofl::now_ns;

std::int64_t soon() { return now_ns() + 10 * kSecond; }

// An echo server on its own thread.
class Echo {
 public:
  Echo() {
    ofl_server_options options{};
    options.service = "echo";
    options.version_min = options.version_max = 1;
    options.frame_bytes_max = 1U << 22;
    options.connections_max = options.pending_max = 64;
    options.calls_max = 256;
    options.handshake_ns = options.frame_ns = 5 * kSecond;
    options.queue_bytes_max = 1U << 24;
    char text[512];
    CHECK(ofl_server_create(&options, &server_, text, sizeof text) == OFL_OK);
    CHECK(ofl_server_listen(server_, "127.0.0.1", 0, &port_, text, sizeof text) == OFL_OK);
    thread_ = std::thread([this] { serve(); });
  }
  ~Echo() {
    ofl_server_close(server_);
    thread_.join();
    ofl_server_free(server_);
  }
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  ofl_client* client() const {
    ofl_client_options options{};
    options.host = "127.0.0.1";
    options.service = "echo";
    options.port = port_;
    options.version_min = options.version_max = 1;
    options.frame_bytes_max = 1U << 22;
    options.heartbeat_ns = kSecond / 50;
    options.loss_ns = 5 * kSecond;
    ofl_client* client = nullptr;
    ofl_peer peer;
    char text[512];
    const int status = ofl_client_connect(&options, soon(), &client, &peer, text, sizeof text);
    if (status != OFL_OK) std::printf("connect: %s\n", text);
    CHECK(status == OFL_OK);
    return client;
  }

 private:
  void serve() {
    ofl_event event;
    for (;;) {
      const int status = ofl_server_next(server_, soon(), &event);
      if (status == OFL_CLOSED) return;
      if (status != OFL_OK || event.kind != OFL_EVENT_REQUEST) continue;
      const ofl_part part{event.body, event.body_bytes};
      ofl_server_reply(server_, event.connection, event.sequence, &part, 1);
      if (event.capacity > 0) ofl_body_free(event.body);
    }
  }

  ofl_server* server_ = nullptr;
  std::uint16_t port_ = 0;
  std::thread thread_;
};

int wait_for(ofl_client* client, std::uint64_t sequence, std::string& reply) {
  const void* body = nullptr;
  std::size_t bytes = 0;
  int status = OFL_INTERRUPTED;
  while (status == OFL_INTERRUPTED) status = ofl_client_wait(client, sequence, soon(), &body, &bytes);
  if (status == OFL_OK) reply.assign(static_cast<const char*>(body), bytes);
  return status;
}

std::uint64_t submit(ofl_client* client, const std::string& text) {
  const ofl_part parts[] = {{text.data(), text.size() / 2}, {text.data() + text.size() / 2, text.size() - text.size() / 2}};
  std::uint64_t sequence = 0;
  CHECK(ofl_client_submit(client, parts, 2, soon(), &sequence) == OFL_OK);
  return sequence;
}

}  // namespace

TEST(bodies_of_every_size_class_come_back) {
  const Echo echo;
  ofl_client* client = echo.client();
  for (const std::size_t size : {0UL, 1UL, 4096UL, 4097UL, 16384UL, 65536UL, 65537UL, 1UL << 22}) {
    const std::string body(size, static_cast<char>('a' + size % 7));
    std::string reply;
    CHECK(wait_for(client, submit(client, body), reply) == OFL_OK);
    CHECK(reply == body);
  }
  ofl_client_free(client);
}

TEST(clients_on_several_threads_are_served_at_once) {
  const Echo echo;
  std::vector<std::thread> threads;
  for (int index = 0; index < 4; ++index) {
    threads.emplace_back([&echo, index] {
      ofl_client* client = echo.client();
      for (int turn = 0; turn < 300; ++turn) {
        const std::string body(static_cast<std::size_t>(turn * 37 % 9000), static_cast<char>('a' + index));
        const std::uint64_t sequence = submit(client, body);
        if (turn % 5 == 0) {
          CHECK(ofl_client_cancel(client, sequence) == OFL_OK);
          continue;
        }
        std::string reply;
        CHECK(wait_for(client, sequence, reply) == OFL_OK);
        CHECK(reply == body);
      }
      ofl_client_free(client);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(closing_from_another_thread_ends_a_wait) {
  const Echo echo;
  for (int turn = 0; turn < 20; ++turn) {
    ofl_client* client = echo.client();
    const std::uint64_t answered = submit(client, "x");
    std::string reply;
    CHECK(wait_for(client, answered, reply) == OFL_OK);
    std::atomic<int> status{-1};
    // Never answered: the sequence is held open by a body that the echo server is still busy with, or not sent at all.
    const std::uint64_t sequence = submit(client, std::string(1U << 22, 'y'));
    std::thread waiter([&] { status = wait_for(client, sequence, reply); });
    ofl_client_close(client);
    waiter.join();
    CHECK(status == OFL_CLOSED || status == OFL_OK);
    ofl_client_free(client);
  }
}

TEST(a_server_that_closes_under_load_ends_every_client_in_time) {
  std::vector<ofl_client*> clients;
  {
    const Echo echo;
    for (int index = 0; index < 8; ++index) clients.push_back(echo.client());
    for (ofl_client* client : clients) submit(client, std::string(100'000, 'z'));
  }
  for (ofl_client* client : clients) {
    const std::int64_t limit = now_ns() + 2 * kSecond;
    while (ofl_client_alive(client) != 0 && now_ns() < limit) std::this_thread::yield();
    CHECK(ofl_client_alive(client) == 0);
    char text[512];
    ofl_client_reason(client, text, sizeof text);
    CHECK(std::strlen(text) > 0);
    ofl_client_free(client);
  }
}
