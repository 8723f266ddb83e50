#include "client_tickets.hpp"

#include <thread>

#include "check.hpp"

using namespace engram;

namespace {

constexpr Nanoseconds kLong = 20 * kSecond;

std::uint64_t enqueued(Tickets& tickets, std::uint32_t staging) {
  const engram_batch batch{nullptr, 0, 0};
  std::uint64_t ticket = 0;
  CHECK(static_cast<bool>(tickets.enqueue({&batch, 1}, 0, staging, ticket)));
  return ticket;
}

Served served(std::uint64_t rows) {
  Served done;
  done.result.rows = rows;
  return done;
}

}  // namespace

TEST(lookups_are_taken_up_in_order_of_arrival) {
  Tickets tickets;
  for (std::uint32_t staging : {5U, 2U, 9U}) enqueued(tickets, staging);
  for (std::uint32_t staging : {5U, 2U, 9U}) {
    Tickets::Place* const place = tickets.next();
    CHECK(place != nullptr && place->staging == staging);
    if (place != nullptr) tickets.end(*place, served(staging));
  }
  CHECK(tickets.next() == nullptr && !tickets.any());
}

TEST(a_staging_has_one_open_lookup_at_a_time_and_an_ended_one_gives_way) {
  Tickets tickets;
  const engram_batch batch{nullptr, 0, 0};
  const std::uint64_t first = enqueued(tickets, 3);
  std::uint64_t other = 0;
  CHECK(tickets.enqueue({&batch, 1}, 0, 3, other).status == ENGRAM_INVALID);
  Tickets::Place* const place = tickets.next();
  CHECK(tickets.enqueue({&batch, 1}, 0, 3, other).status == ENGRAM_INVALID);
  tickets.end(*place, served(1));
  const std::uint64_t second = enqueued(tickets, 3);
  engram_result result{};
  CHECK(second != first);
  CHECK(tickets.wait(first, now_ns() + kLong, 0, result).status == ENGRAM_UNKNOWN);
}

TEST(a_wait_ends_with_the_result_its_deadline_or_not_knowing_the_ticket) {
  Tickets tickets;
  const std::uint64_t ticket = enqueued(tickets, 0);
  engram_result result{};
  CHECK(tickets.wait(ticket, now_ns(), 0, result).status == ENGRAM_DEADLINE);
  CHECK(tickets.wait(0, now_ns() + kLong, 0, result).status == ENGRAM_UNKNOWN);
  CHECK(tickets.wait(ticket + 1, now_ns() + kLong, 0, result).status == ENGRAM_UNKNOWN);
  CHECK(tickets.wait(UINT64_MAX, now_ns() + kLong, 0, result).status == ENGRAM_UNKNOWN);
  std::thread proxy([&] { tickets.end(*tickets.next(), served(77)); });
  CHECK(static_cast<bool>(tickets.wait(ticket, now_ns() + kLong, kMillisecond, result)));
  CHECK(result.rows == 77);
  proxy.join();
  CHECK(tickets.wait(ticket, now_ns() + kLong, 0, result).status == ENGRAM_UNKNOWN);
}

TEST(two_waiters_of_one_ticket_and_one_result) {
  Tickets tickets;
  const std::uint64_t ticket = enqueued(tickets, 0);
  std::atomic<int> got{0};
  std::atomic<int> unknown{0};
  const auto wait = [&] {
    engram_result result{};
    const Status status = tickets.wait(ticket, now_ns() + kLong, 0, result).status;
    (status == ENGRAM_OK ? got : unknown).fetch_add(1);
  };
  std::thread first(wait);
  std::thread second(wait);
  tickets.end(*tickets.next(), served(1));
  first.join();
  second.join();
  CHECK(got == 1 && unknown == 1);
}

TEST(after_closing_nothing_more_is_taken_and_what_was_taken_can_be_served) {
  Tickets tickets;
  const std::uint64_t ticket = enqueued(tickets, 0);
  tickets.close();
  const engram_batch batch{nullptr, 0, 0};
  std::uint64_t other = 0;
  CHECK(tickets.enqueue({&batch, 1}, 0, 1, other).status == ENGRAM_CLOSED);
  tickets.end(*tickets.next(), served(5));
  engram_result result{};
  CHECK(static_cast<bool>(tickets.wait(ticket, now_ns() + kLong, 0, result)) && result.rows == 5);
}
