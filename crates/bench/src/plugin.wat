;; The plugins of `route bench plugin`, by hand, so that the bench needs no compiler: what is in braces is filled in
;; (description, its place and length, and the work on a packet). The loop tests its condition at the end, as compiled
;; loops do.
(module
  (memory (export "memory") 2)
  (data (i32.const 16) "{description}")
  (func (export "nilometer_interface") (result i32) i32.const 1)
  (func (export "nilometer_describe") (result i64) i64.const {place})
  (func (export "nilometer_area") (param i32) (result i32) i32.const 4096)
  (func (export "nilometer_new") (param i32 i32 i64) (result i32) i32.const 0)
  (func (export "nilometer_process") (param $at i32) (param $packets i32) (param $now i64) (result i32)
    (local $end i32) (local $packet i32) (local $sum i32) (local $tos i32)
    (local.set $end (i32.add (local.get $at) (i32.shl (local.get $packets) (i32.const 4))))
    (block $done
      (br_if $done (i32.eqz (local.get $packets)))
      (loop $next
        {work}
        (br_if $next (i32.ne (local.tee $at (i32.add (local.get $at) (i32.const 16))) (local.get $end)))))
    i32.const 0)
  (func (export "nilometer_message") (param i32 i32 i64) (result i32) i32.const 1)
  (func (export "nilometer_timeout") (param i64) (result i32) i32.const 0)
  (func (export "nilometer_counters") (result i32) i32.const 256))
