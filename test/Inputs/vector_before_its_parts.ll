; A kernel of which the vectoriser of straight-line code of LLVM 22.1 makes a vector before the parts that it is made of.

define internal void @work(ptr noalias align 4 %x.0, ptr noalias align 8 %x.1, ptr noalias align 8 %x.2, ptr noalias align 8 %x.3, ptr noalias align 8 %x.4, ptr %fork, i64 %pool) #2 {
start:
  %stack1 = alloca [2 x i64], align 64
  %stack2 = alloca [2 x i64], align 64
  br label %for3
for3:
  %iv6 = phi i64 [ 1, %start ], [ %iv28, %done10 ]
  %c7 = icmp slt i64 %iv6, 3
  br i1 %c7, label %body4, label %done5
body4:
  br label %for8
for8:
  %iv11 = phi i64 [ 0, %body4 ], [ %iv27, %body9 ]
  %c12 = icmp slt i64 %iv11, 2
  br i1 %c12, label %body9, label %done10
body9:
  %a13 = getelementptr inbounds float, ptr %x.0, i64 %iv11
  %l14 = load float, ptr %a13, align 4, !llvm.access.group !1
  %i15 = sub nsw i64 %iv6, 1
  %i16 = mul nsw i64 %i15, 2
  %i17 = add nsw i64 %i16, %iv11
  %a18 = getelementptr inbounds double, ptr %x.1, i64 %i17
  %l19 = load double, ptr %a18, align 8, !llvm.access.group !1
  %c20 = fcmp oeq double %l19, 0x3FE0000000000000
  %v21 = select i1 %c20, double %l19, double %l19
  %v22 = fptrunc double %v21 to float
  %v23 = call float @llvm.maximum.f32(float %l14, float %v22)
  %i24 = mul nsw i64 %i15, 2
  %i25 = add nsw i64 %i24, %iv11
  %a26 = getelementptr inbounds float, ptr %stack1, i64 %i25
  store float %v23, ptr %a26, align 4, !llvm.access.group !1
  %iv27 = add nsw i64 %iv11, 1
  br label %for8, !llvm.loop !2
done10:
  %iv28 = add nsw i64 %iv6, 1
  br label %for3, !llvm.loop !0
done5:
  br i1 true, label %then29, label %else30
then29:
  br label %for32
for32:
  %iv35 = phi i64 [ 0, %then29 ], [ %iv54, %body33 ]
  %c36 = icmp slt i64 %iv35, 2
  br i1 %c36, label %body33, label %done34
body33:
  %a37 = getelementptr inbounds float, ptr %x.0, i64 %iv35
  %l38 = load float, ptr %a37, align 4, !llvm.access.group !3
  %i39 = add nsw i64 2, %iv35
  %a40 = getelementptr inbounds float, ptr %stack2, i64 %i39
  store float %l38, ptr %a40, align 4, !llvm.access.group !3
  %i41 = add nsw i64 2, %iv35
  %a42 = getelementptr inbounds float, ptr %stack1, i64 %i41
  %l43 = load float, ptr %a42, align 4, !llvm.access.group !3
  %v44 = fpext float %l43 to double
  %c45 = fcmp oeq double %v44, 0x3FE0000000000000
  %v46 = select i1 %c45, float %l43, float %l43
  %v47 = fsub float %l38, %l38
  %v48 = fsub float %v46, %v47
  %v49 = fpext float %v48 to double
  %v50 = call double @llvm.maximum.f64(double %v49, double 0xC010000000000000)
  %v51 = call double @llvm.minimum.f64(double %v50, double 0x4010000000000000)
  %v52 = fptrunc double %v51 to float
  %a53 = getelementptr inbounds float, ptr %stack2, i64 %iv35
  store float %v52, ptr %a53, align 4, !llvm.access.group !3
  %iv54 = add nsw i64 %iv35, 1
  br label %for32, !llvm.loop !4
done34:
  br label %endif31
else30:
  br label %endif31
endif31:
  br label %for55
for55:
  %iv58 = phi i64 [ 1, %endif31 ], [ %iv87, %done62 ]
  %c59 = icmp slt i64 %iv58, 3
  br i1 %c59, label %body56, label %done57
body56:
  br label %for60
for60:
  %iv63 = phi i64 [ 0, %body56 ], [ %iv86, %body61 ]
  %c64 = icmp slt i64 %iv63, 2
  br i1 %c64, label %body61, label %done62
body61:
  %i65 = sub nsw i64 %iv58, 1
  %i66 = mul nsw i64 %i65, 2
  %i67 = add nsw i64 %i66, %iv63
  %a68 = getelementptr inbounds float, ptr %stack1, i64 %i67
  %l69 = load float, ptr %a68, align 4, !llvm.access.group !6
  %v70 = fpext float %l69 to double
  %c71 = fcmp oeq double %v70, 0x3FE0000000000000
  %v72 = select i1 %c71, float %l69, float %l69
  %i73 = mul nsw i64 %i65, 2
  %i74 = add nsw i64 %i73, %iv63
  %a75 = getelementptr inbounds float, ptr %stack2, i64 %i74
  %l76 = load float, ptr %a75, align 4, !llvm.access.group !6
  %v77 = fsub float %l76, %l76
  %v78 = fsub float %v72, %v77
  %v79 = fpext float %v78 to double
  %v80 = call double @llvm.maximum.f64(double %v79, double 0xC010000000000000)
  %v81 = call double @llvm.minimum.f64(double %v80, double 0x4010000000000000)
  %v82 = fsub double %v81, %v81
  %i83 = mul nsw i64 %i65, 2
  %i84 = add nsw i64 %i83, %iv63
  %a85 = getelementptr inbounds double, ptr %x.2, i64 %i84
  store double %v82, ptr %a85, align 8, !llvm.access.group !6
  %iv86 = add nsw i64 %iv63, 1
  br label %for60, !llvm.loop !7
done62:
  %iv87 = add nsw i64 %iv58, 1
  br label %for55, !llvm.loop !5
done57:
  %l88 = load float, ptr %x.0, align 4
  %v89 = fpext float %l88 to double
  %v90 = fmul double %v89, %v89
  %v91 = call double @llvm.maximum.f64(double %v90, double 0xC010000000000000)
  %v92 = call double @llvm.minimum.f64(double %v91, double 0x4010000000000000)
  %v93 = fsub double %v89, %v92
  store double %v93, ptr %x.3, align 8
  ret void
}

define i64 @upl_entry(ptr noalias %slots) #0 {
start:
  %a1 = getelementptr inbounds i64, ptr %slots, i64 4
  %v2 = load ptr, ptr %a1
  %a3 = getelementptr inbounds i64, ptr %slots, i64 5
  %v4 = load ptr, ptr %a3
  %a5 = getelementptr inbounds i64, ptr %slots, i64 6
  %v6 = load ptr, ptr %a5
  %a7 = getelementptr inbounds i64, ptr %slots, i64 7
  %v8 = load ptr, ptr %a7
  %a9 = getelementptr inbounds i64, ptr %slots, i64 8
  %v10 = load ptr, ptr %a9
  %a11 = getelementptr inbounds i64, ptr %slots, i64 2
  %v12 = load ptr, ptr %a11
  %a13 = getelementptr inbounds i64, ptr %slots, i64 3
  %v14 = load i64, ptr %a13
  call void @work(ptr %v2, ptr %v4, ptr %v6, ptr %v8, ptr %v10, ptr %v12, i64 %v14)
  ret i64 0
}

attributes #0 = { nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }
attributes #1 = { alwaysinline willreturn memory(none) nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }
attributes #2 = { noinline nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }
attributes #3 = { willreturn memory(none) nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }
attributes #4 = { noinline willreturn memory(none) nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }
attributes #5 = { noinline optsize nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }
attributes #6 = { nobuiltin willreturn memory(none) nounwind "prefer-vector-width"="512" "no-trapping-math"="true" }
!0 = distinct !{!0, !{!"llvm.loop.unroll.disable"}}
!1 = distinct !{}
!2 = distinct !{!2, !{!"llvm.loop.parallel_accesses", !1}}
!3 = distinct !{}
!4 = distinct !{!4, !{!"llvm.loop.parallel_accesses", !3}}
!5 = distinct !{!5, !{!"llvm.loop.unroll.disable"}}
!6 = distinct !{}
!7 = distinct !{!7, !{!"llvm.loop.parallel_accesses", !6}}
