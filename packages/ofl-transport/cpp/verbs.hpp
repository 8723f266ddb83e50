// libibverbs, opened at run time, so that one build of the library runs on hosts with and without it.  Owns the table of the
// functions that libibverbs exports; the inline ones of its header go through a context's operations and need no table.
// Nothing else names a symbol of libibverbs.
#pragma once

#ifdef OFL_VERBS

#include <memory>

#include <infiniband/verbs.h>

#include "status.hpp"

namespace ofl {

struct Verbs {
  decltype(&::ibv_get_device_list) get_device_list;
  decltype(&::ibv_free_device_list) free_device_list;
  decltype(&::ibv_get_device_name) get_device_name;
  decltype(&::ibv_open_device) open_device;
  decltype(&::ibv_close_device) close_device;
  decltype(&::ibv_alloc_pd) alloc_pd;
  decltype(&::ibv_dealloc_pd) dealloc_pd;
  decltype(&::ibv_query_device) query_device;
  decltype(&::ibv_query_port) query_port;
  decltype(&::ibv_reg_mr) reg_mr;
  decltype(&::ibv_dereg_mr) dereg_mr;
  decltype(&::ibv_create_comp_channel) create_comp_channel;
  decltype(&::ibv_destroy_comp_channel) destroy_comp_channel;
  decltype(&::ibv_create_cq) create_cq;
  decltype(&::ibv_destroy_cq) destroy_cq;
  decltype(&::ibv_get_cq_event) get_cq_event;
  decltype(&::ibv_ack_cq_events) ack_cq_events;
  decltype(&::ibv_create_qp) create_qp;
  decltype(&::ibv_modify_qp) modify_qp;
  decltype(&::ibv_destroy_qp) destroy_qp;
  decltype(&::ibv_get_async_event) get_async_event;
  decltype(&::ibv_ack_async_event) ack_async_event;
  decltype(&::ibv_fork_init) fork_init;
  decltype(&::ibv_is_fork_initialized) is_fork_initialized;  // nullptr before libibverbs 1.13
};

inline constexpr char kVerbsLibrary[] = "libibverbs.so.1";

// Opens a library and fills the table.  A failure says what is missing.
Outcome open_verbs(const char* library, Verbs& table);

// The table of libibverbs, filled at the first call; the library stays open, and a failure stays the same.
Outcome load_verbs(const Verbs*& verbs);

// To be called before memory is registered: without it, a fork() would leave the device writing to pages that the parent no
// longer sees.  Fails where something else in this process registered memory first.
Outcome make_forks_safe(const Verbs& verbs);

// Ends an object of libibverbs with the function of the table that does it.
template <auto End>
struct VerbsEnd {
  const Verbs* verbs = nullptr;
  template <typename Object>
  void operator()(Object* object) const noexcept {
    static_cast<void>((verbs->*End)(object));
  }
};

using UniqueContext = std::unique_ptr<ibv_context, VerbsEnd<&Verbs::close_device>>;
using UniqueDomain = std::unique_ptr<ibv_pd, VerbsEnd<&Verbs::dealloc_pd>>;
using UniqueEvents = std::unique_ptr<ibv_comp_channel, VerbsEnd<&Verbs::destroy_comp_channel>>;
using UniqueCompletions = std::unique_ptr<ibv_cq, VerbsEnd<&Verbs::destroy_cq>>;
using UniqueQueuePair = std::unique_ptr<ibv_qp, VerbsEnd<&Verbs::destroy_qp>>;
using UniqueRegion = std::unique_ptr<ibv_mr, VerbsEnd<&Verbs::dereg_mr>>;

}  // namespace ofl

#endif
