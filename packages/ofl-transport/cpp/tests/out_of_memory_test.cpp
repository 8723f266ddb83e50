// Where the memory runs out: whatever was under way fails, and nothing stays behind that keeps the rest from going on.

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "sessions.hpp"
#include "socket.hpp"

namespace {

std::atomic<bool> starving{false};        // threads other than those that are fed get nothing
thread_local bool fed = false;
thread_local bool starves_alone = false;  // this thread gets nothing

bool gets_nothing() noexcept { return starves_alone || (starving.load(std::memory_order_relaxed) && !fed); }

// While it lives only the thread that made it gets memory.
class Famine {
 public:
  Famine() {
    fed = true;
    starving = true;
  }
  ~Famine() { end(); }
  void end() {
    starving = false;
    fed = false;
  }
};

}  // namespace

// The whole program's; arrays have their own in connection_test.cpp.
void* operator new(std::size_t bytes) {
  void* const memory = gets_nothing() ? nullptr : std::malloc(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

using sessions::Client;
using sessions::Server;
using sessions::soon;

namespace {

ofl::UniqueFd knock(const Server& server) {
  std::vector<ofl::Address> addresses;
  CHECK(ofl::resolve("127.0.0.1", server.offer().port, soon(), addresses));
  ofl::UniqueFd socket;
  ofl::Attempt attempt;
  CHECK(ofl::connect_socket(addresses, nullptr, soon(), socket, attempt));
  return socket;
}

bool serves(const Server& server, const Client& client) {
  const std::uint64_t sequence = client.submit("x");
  CHECK(server.reply(server.take(), "y") == OFL_OK);
  std::string reply;
  return client.wait(sequence, reply) == OFL_OK && reply == "y";
}

}  // namespace

TEST(a_keeper_without_memory_closes_who_knocks_and_goes_on) {
  const Server server(OFL_TCP);
  const Client client(server);
  {
    Famine famine;
    const ofl::UniqueFd stranger = knock(server);
    CHECK(Server::eventually([&] { return server.counter("evicted") == 1; }));
  }
  CHECK(serves(server, client));
  CHECK(serves(server, Client(server)));
}

// Every heartbeat's sweep needs some.
ON_EACH_WIRE(keepers_without_memory_for_some_heartbeats_lose_nobody) {
  const Server server(wire);
  const Client client(server);
  CHECK(serves(server, client));
  {
    const Famine famine;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  CHECK(ofl_client_alive(client.get()) == 1);
  CHECK(serves(server, client));
}

ON_EACH_WIRE(a_consumer_that_ran_out_of_memory_is_not_busy_for_ever) {
  const Server server(wire);
  const Client client(server);
  CHECK(serves(server, client));
  std::atomic<int> failed{0};
  std::thread consumer([&] {
    starves_alone = true;
    ofl_event event;
    const std::int64_t deadline = soon();
    int status = OFL_INTERRUPTED;
    while (status == OFL_INTERRUPTED) status = ofl_server_next(server.get(), deadline, &event);
    failed = status;
    starves_alone = false;
  });
  consumer.join();
  CHECK(failed == OFL_SYSTEM);
  CHECK(serves(server, client));
}

// What a client asked for is half done; the others are served as before, and the consumer hears of the end.
ON_EACH_WIRE(a_connection_that_runs_out_of_memory_ends_alone) {
  const Server server(wire);
  const Client first(server);
  const Client second(server);
  CHECK(serves(server, second));
  {
    Famine famine;
    const std::uint64_t sequence = first.submit("x");
    std::string reply;
    CHECK(first.wait(sequence, reply) == OFL_LOST);
  }
  CHECK(Server::eventually([&] { return server.counter("disconnects") == 1; }));
  bool heard = false;
  for (ofl_event event; !heard;) {
    const int status = ofl_server_next(server.get(), soon(), &event);
    CHECK(status == OFL_OK || status == OFL_INTERRUPTED);
    if (status != OFL_OK && status != OFL_INTERRUPTED) break;
    heard = status == OFL_OK && event.kind == OFL_EVENT_DISCONNECTED;
  }
  CHECK(heard);
  CHECK(serves(server, second));
}

// The server would take the next request in that slot for a broken rule, or never say that a placement is over.
ON_EACH_WIRE(a_cancel_that_cannot_be_said_ends_the_connection) {
  const Server server(wire);
  const Client client(server);
  std::vector<std::uint64_t> sequences;
  for (int i = 0; i < 8; ++i) sequences.push_back(client.submit("x"));
  starves_alone = true;  // a check that does not hold would need memory here
  int held = 0;
  for (const std::uint64_t sequence : sequences)
    if (ofl_client_cancel(client.get(), sequence) == OFL_OK) ++held;
  starves_alone = false;
  CHECK(held == 8);
  CHECK(ofl_client_alive(client.get()) == 0);
}

ON_EACH_WIRE(both_ends_close_without_memory) {
  const Server server(wire);
  const Client client(server);
  CHECK(serves(server, client));
  starves_alone = true;
  ofl_client_close(client.get());
  ofl_server_close(server.get());
  starves_alone = false;
  CHECK(ofl_client_alive(client.get()) == 0);
}

TEST(a_lookup_without_memory_fails_in_words) {
  const Famine famine;
  std::vector<ofl::Address> addresses;
  const ofl::Outcome outcome = ofl::resolve("localhost", 1, soon(), addresses);
  CHECK(!outcome && outcome.text.starts_with("host localhost cannot be resolved"));
}
