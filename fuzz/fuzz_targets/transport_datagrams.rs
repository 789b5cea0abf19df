#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| (trireme_fuzz_targets::target("transport_datagrams").run)(data));
