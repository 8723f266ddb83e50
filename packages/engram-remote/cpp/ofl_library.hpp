// libofl, opened at run time by the path that the binding hands over.  Owns the table of its functions; nothing else names a
// symbol of libofl, and the library needs no more of the transport than its header to be built.
#pragma once

#include "ofl.h"
#include "status.hpp"

namespace engram {

struct OflLibrary {
  decltype(&::ofl_abi_version) abi_version;
  decltype(&::ofl_buffer_create) buffer_create;
  decltype(&::ofl_buffer_base) buffer_base;
  decltype(&::ofl_buffer_free) buffer_free;
  decltype(&::ofl_body_free) body_free;
  decltype(&::ofl_client_connect) client_connect;
  decltype(&::ofl_client_register) client_register;
  decltype(&::ofl_client_submit) client_submit;
  decltype(&::ofl_client_wait) client_wait;
  decltype(&::ofl_client_cancel) client_cancel;
  decltype(&::ofl_client_settled) client_settled;
  decltype(&::ofl_client_alive) client_alive;
  decltype(&::ofl_client_reason) client_reason;
  decltype(&::ofl_client_close) client_close;
  decltype(&::ofl_client_free) client_free;
  decltype(&::ofl_server_create) server_create;
  decltype(&::ofl_server_listen) server_listen;
  decltype(&::ofl_server_register) server_register;
  decltype(&::ofl_server_next) server_next;
  decltype(&::ofl_server_reply) server_reply;
  decltype(&::ofl_server_idle) server_idle;
  decltype(&::ofl_server_disconnect) server_disconnect;
  decltype(&::ofl_server_wake) server_wake;
  decltype(&::ofl_server_counters) server_counters;
  decltype(&::ofl_counter_name) counter_name;
  decltype(&::ofl_server_close) server_close;
  decltype(&::ofl_server_free) server_free;
};

// Opens libofl and fills the table; a second call with any path changes nothing.  A failure says what is missing, and
// leaves the next call to try again.
Outcome open_ofl(const char* path);

// The table, or nullptr before open_ofl succeeded.
const OflLibrary* ofl_if_open() noexcept;

// The table.  Only where a handle proves that it is open.
const OflLibrary& ofl() noexcept;

// OK once libofl is open; else the sentence that every create function returns.
Outcome needs_ofl();

}  // namespace engram
