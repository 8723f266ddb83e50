// Replies into memory of the caller's, and memory that is lent, through the C ABI: whole, in place, and nothing beside it.

#include <algorithm>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "sessions.hpp"

using sessions::Body;
using sessions::Buffer;
using sessions::Client;
using sessions::Echo;
using sessions::Server;
using sessions::now_ns;
using sessions::pattern;
using sessions::soon;

namespace {

constexpr char kPoison = '\x5A';

bool all(const char* base, std::size_t bytes, char value) {
  return std::all_of(base, base + bytes, [value](char byte) { return byte == value; });
}

}  // namespace

ON_EACH_WIRE(a_placed_reply_lands_in_its_range_and_nowhere_else) {
  const Echo echo(wire);
  const Client client(echo);
  constexpr std::size_t kMargin = 4096;
  const Buffer buffer(2 * kMargin + (1U << 20));
  client.adopt(buffer);
  for (const std::size_t size : {0UL, 1UL, 4097UL, 16383UL, 16384UL, 16385UL, 65536UL, 65537UL, 1UL << 20}) {
    std::memset(buffer.base(), kPoison, 2 * kMargin + (1U << 20));
    const std::string body = pattern(size, 2);
    std::string reply;
    CHECK(client.wait(client.submit_into(body, buffer, kMargin, std::max<std::size_t>(size, 1)), reply) == OFL_OK);
    CHECK(reply == body);
    CHECK(std::memcmp(buffer.base() + kMargin, body.data(), size) == 0);
    CHECK(all(buffer.base(), kMargin, kPoison));
    CHECK(all(buffer.base() + kMargin + size, kMargin + (1U << 20) - size, kPoison));
  }
}

ON_EACH_WIRE(placed_replies_in_any_order_find_their_own_ranges) {
  const Server server(wire);
  const Client client(server);
  constexpr std::size_t kCalls = 64;
  constexpr std::size_t kRoom = 20'000;
  const Buffer buffer(kCalls * kRoom);
  client.adopt(buffer);
  std::vector<std::uint64_t> sequences;
  for (std::size_t i = 0; i < kCalls; ++i)
    sequences.push_back(client.submit_into(pattern(kRoom - i, static_cast<unsigned>(i)), buffer, i * kRoom, kRoom));
  std::vector<Body> requests;
  for (std::size_t i = 0; i < kCalls; ++i) requests.push_back(server.take());
  for (std::size_t i = 0; i < kCalls; ++i) {  // 27 and 64 have no common divisor: every one once
    const Body& request = requests[i * 27 % kCalls];
    CHECK(request.reply_bytes_max == kRoom);
    CHECK(server.reply(request, request.bytes) == OFL_OK);
  }
  for (std::size_t i = 0; i < kCalls; ++i) {
    std::string reply;
    CHECK(client.wait(sequences[i], reply) == OFL_OK);
    CHECK(reply == pattern(kRoom - i, static_cast<unsigned>(i)));
    CHECK(std::memcmp(buffer.base() + i * kRoom, reply.data(), reply.size()) == 0);
  }
}

ON_EACH_WIRE(a_reply_over_its_range_is_refused_to_the_server_and_the_call_stays_open) {
  const Server server(wire);
  const Client client(server);
  const Buffer buffer(4096);
  std::memset(buffer.base(), kPoison, 4096);
  client.adopt(buffer);
  const std::uint64_t sequence = client.submit_into("x", buffer, 0, 100);
  const Body request = server.take();
  CHECK(server.reply(request, std::string(101, 'r')) == OFL_TOO_LARGE);
  CHECK(all(buffer.base(), 4096, kPoison));
  CHECK(server.reply(request, std::string(100, 'r')) == OFL_OK);
  std::string reply;
  CHECK(client.wait(sequence, reply) == OFL_OK);
  CHECK(reply == std::string(100, 'r'));
  CHECK(all(buffer.base() + 100, 4096 - 100, kPoison));
}

ON_EACH_WIRE(overlapping_ranges_of_open_calls_are_refused) {
  const Server server(wire);
  const Client client(server);
  const Buffer buffer(4096);
  client.adopt(buffer);
  const std::uint64_t first = client.submit_into("first", buffer, 100, 200);
  std::uint64_t sequence = 0;
  for (const auto& [offset, room] : {std::pair{100UL, 200UL}, {0UL, 101UL}, {299UL, 1UL}, {0UL, 4096UL}, {150UL, 10UL}}) {
    const ofl_call_options options{buffer.get(), offset, room, nullptr};
    CHECK(client.try_submit("second", &options, &sequence) == OFL_OVERLAP);
  }
  const std::uint64_t before = client.submit_into("before", buffer, 0, 100);
  const std::uint64_t after = client.submit_into("after", buffer, 300, 100);
  for (int i = 0; i < 3; ++i) {
    const Body request = server.take();
    CHECK(server.reply(request, request.bytes) == OFL_OK);
  }
  std::string reply;
  CHECK(client.wait(first, reply) == OFL_OK && reply == "first");
  CHECK(client.wait(before, reply) == OFL_OK && reply == "before");
  CHECK(client.wait(after, reply) == OFL_OK && reply == "after");
  CHECK(client.wait(client.submit_into("again", buffer, 100, 200), reply, 0) == OFL_DEADLINE);
}

ON_EACH_WIRE(a_range_that_goes_past_the_size_of_its_buffer_is_refused) {
  const Server server(wire);
  const Client client(server);
  const Buffer buffer(100);  // on a page of its own, whose rest is nobody's
  client.adopt(buffer);
  std::uint64_t sequence = 0;
  for (const auto& [offset, room] : {std::pair{0UL, 101UL}, {100UL, 1UL}, {99UL, 2UL}, {101UL, 0UL}, {1UL, SIZE_MAX}}) {
    const ofl_call_options options{buffer.get(), offset, room, nullptr};
    CHECK(client.try_submit("x", &options, &sequence) == OFL_INVALID);
  }
  const std::uint64_t whole = client.submit_into("x", buffer, 0, 100);
  const Body request = server.take();
  CHECK(request.reply_bytes_max == 100);
  CHECK(server.reply(request, std::string(100, 'r')) == OFL_OK);
  std::string reply;
  CHECK(client.wait(whole, reply) == OFL_OK && reply == std::string(100, 'r'));
}

// Both wires place by the receiving CPU: once a cancel has returned the memory is the caller's.
ON_EACH_WIRE(the_memory_of_a_cancelled_call_is_free_at_once) {
  const Server server(wire);
  const Client client(server);
  constexpr std::size_t kRoom = 300'000;
  const Buffer buffer(kRoom);
  client.adopt(buffer);
  for (int turn = 0; turn < 20; ++turn) {
    std::memset(buffer.base(), kPoison, kRoom);
    const std::uint64_t cancelled = client.submit_into("cancelled", buffer, 0, kRoom);
    const Body request = server.take();
    if (turn % 2 == 0) CHECK(server.reply(request, std::string(kRoom, 'w')) == OFL_OK);
    if (turn % 4 == 0) {  // some of it, or all, may have arrived
      std::string reply;
      CHECK(client.wait(client.submit("push"), reply, now_ns()) == OFL_DEADLINE);
      const Body push = server.take();
      CHECK(server.reply(push, "pushed") == OFL_OK);
    }
    CHECK(ofl_client_cancel(client.get(), cancelled) == OFL_OK);
    CHECK(ofl_client_settled(client.get(), cancelled, 0) == OFL_OK);
    std::memset(buffer.base(), 'm', kRoom);
    const std::uint64_t other = client.submit("other");
    const Body next = server.take();
    CHECK(server.reply(next, "other") == OFL_OK);
    std::string reply;
    CHECK(client.wait(other, reply) == OFL_OK && reply == "other");
    CHECK(all(buffer.base(), kRoom, 'm'));
  }
}

ON_EACH_WIRE(a_bounced_reply_touches_the_memory_only_when_it_is_waited_for) {
  const Server server(wire);
  const Client client(server);
  std::vector<char> memory(5000, kPoison);
  const Buffer buffer(memory.size(), OFL_BUFFER_BOUNCE, memory.data());
  CHECK(buffer.base() == memory.data());
  client.adopt(buffer);
  const std::uint64_t placed = client.submit_into("x", buffer, 1000, 2000);
  const std::uint64_t cancelled = client.submit_into("x", buffer, 3000, 2000);
  const std::uint64_t plain = client.submit("x");
  for (int i = 0; i < 3; ++i) CHECK(server.reply(server.take(), std::string(1500, 'r')) == OFL_OK);
  std::string reply;
  CHECK(client.wait(plain, reply) == OFL_OK);  // came last: the other two have arrived
  CHECK(all(memory.data(), memory.size(), kPoison));
  CHECK(ofl_client_cancel(client.get(), cancelled) == OFL_OK);
  CHECK(client.wait(placed, reply) == OFL_OK && reply == std::string(1500, 'r'));
  CHECK(all(memory.data() + 1000, 1500, 'r'));
  CHECK(all(memory.data(), 1000, kPoison) && all(memory.data() + 2500, 2500, kPoison));
}

ON_EACH_WIRE(lent_parts_and_replies_arrive_and_become_idle) {
  const Server server(wire);
  const Client client(server);
  const std::string body = pattern(3'000'000, 3);
  const Buffer request_buffer(body.size());
  const Buffer reply_buffer(body.size());
  std::memcpy(request_buffer.base(), body.data(), body.size());
  std::memcpy(reply_buffer.base(), body.data(), body.size());
  client.adopt(request_buffer);
  char text[512] = "";
  CHECK(ofl_server_register(server.get(), reply_buffer.get(), text, sizeof text) == OFL_OK);
  const ofl_call_options options{nullptr, 0, 0, request_buffer.get()};
  std::uint64_t sequence = 0;
  CHECK(client.try_submit({request_buffer.base(), body.size()}, &options, &sequence) == OFL_OK);
  const Body request = server.take();
  CHECK(request.bytes == body);
  CHECK(server.reply(request, {reply_buffer.base(), body.size()}, reply_buffer.get()) == OFL_OK);
  std::string reply;
  CHECK(client.wait(sequence, reply) == OFL_OK);
  CHECK(reply == body);
  int status = OFL_INTERRUPTED;
  while (status == OFL_INTERRUPTED) status = ofl_server_idle(server.get(), reply_buffer.get(), soon());
  CHECK(status == OFL_OK);
}

ON_EACH_WIRE(a_buffer_may_be_freed_while_a_call_is_open) {
  const Server server(wire);
  const Client client(server);
  Buffer buffer(100'000);
  client.adopt(buffer);
  const std::uint64_t answered = client.submit_into("x", buffer, 0, 50'000);
  const std::uint64_t cancelled = client.submit_into("x", buffer, 50'000, 50'000);
  buffer.free();
  for (int i = 0; i < 2; ++i) CHECK(server.reply(server.take(), std::string(50'000, 'r')) == OFL_OK);
  const void* body = nullptr;  // not read: its memory may go with the call
  std::size_t bytes = 0;
  int status = OFL_INTERRUPTED;
  while (status == OFL_INTERRUPTED) status = ofl_client_wait(client.get(), answered, soon(), &body, &bytes);
  CHECK(status == OFL_OK && bytes == 50'000);
  CHECK(ofl_client_cancel(client.get(), cancelled) == OFL_OK);
}

ON_EACH_WIRE(placed_calls_and_cancels_of_several_threads_share_a_buffer) {
  const Echo echo(wire);
  constexpr std::size_t kRoom = 70'000;
  constexpr unsigned kThreads = 4;
  const Buffer buffer(kThreads * kRoom);
  std::vector<std::thread> threads;
  for (unsigned index = 0; index < kThreads; ++index) {
    threads.emplace_back([&, index] {
      const Client client(echo);
      client.adopt(buffer);
      for (unsigned turn = 0; turn < 100; ++turn) {
        const std::string body = pattern(turn * 701 % kRoom, index + turn);
        const std::uint64_t sequence = client.submit_into(body, buffer, index * kRoom, kRoom);
        if (turn % 3 == 0) {
          CHECK(ofl_client_cancel(client.get(), sequence) == OFL_OK);
          std::memset(buffer.base() + index * kRoom, kPoison, kRoom);
          continue;
        }
        std::string reply;
        CHECK(client.wait(sequence, reply) == OFL_OK);
        CHECK(reply == body);
        CHECK(std::memcmp(buffer.base() + index * kRoom, body.data(), body.size()) == 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}
